"""What an actor wants done. Hosts carry effects out, in order, and add nothing of their own."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import attrs

from .events import RequestEvent, ScheduleEvent
from .messages import Message
from .work import Grant


@attrs.frozen
class Send:
    """Put a message into another actor's mailbox."""

    to: str
    message: Message


@attrs.frozen
class RunGrant:
    """Run a step on the device, or go on with it when the grant says ``resumed``."""

    grant: Grant


@attrs.frozen
class AskYield:
    """Raise the yield flag of the running grant; with ``give_up`` the step ends there as withdrawn."""

    grant: int
    give_up: bool = False


@attrs.frozen
class DropSuspended:
    """Free the activations of a suspended chunk."""

    step: str


@attrs.frozen
class DropRetained:
    """Free retained KV storage."""

    model: str
    handle: int


@attrs.frozen
class UnloadModel:
    """Free a model's weights and KV."""

    model: str


@attrs.frozen
class SetTimer:
    """Deliver ``message`` to ``to`` at time ``at``; a timer of the same key is replaced."""

    key: str
    at: int
    to: str
    message: Message


@attrs.frozen
class CancelTimer:
    """Forget a timer; one that has gone is no error."""

    key: str


@attrs.frozen
class Notify:
    """Tell a request's client, and the observers."""

    event: RequestEvent


@attrs.frozen
class Report:
    """Tell the observers."""

    event: ScheduleEvent


@attrs.frozen
class Stop:
    """All is ended; the host may go."""


Effect: TypeAlias = (
    Send
    | RunGrant
    | AskYield
    | DropSuspended
    | DropRetained
    | UnloadModel
    | SetTimer
    | CancelTimer
    | Notify
    | Report
    | Stop
)


class Actor(Protocol):
    """A pure state machine: the same messages at the same times give the same effects."""

    name: str

    def handle(self, message: Message, at: int) -> list[Effect]: ...
