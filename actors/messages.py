"""Messages that actors receive. Every one is frozen; the mailbox that delivers it stamps the time."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from ..policies.views import WorkClass
from .errors import CoresidentError
from .work import Measured, PrefixFile, StepRequest, StepResult

# --- from clients ---------------------------------------------------------------------------------------------


@attrs.frozen
class SubmitGeneration:
    """Generate up to ``max_tokens`` after ``prompt``.

    ``identity`` names model, template and options: prefixes are only shared inside one identity. With ``retain`` the
    KV state is kept for reuse when the request ends, cancelled or not. ``after`` names the request whose end led to
    this one; it changes nothing here and lets a recording be replayed with the same dependencies.
    """

    request: str
    prompt: tuple[int, ...]
    max_tokens: int
    identity: str
    work_class: WorkClass = WorkClass.FOREGROUND
    deadline: int | None = None
    retain: bool = True
    conversation: str = ""
    after: str | None = None


@attrs.frozen
class SubmitDecision:
    """Score ``rows`` (tokens each) after ``instruction`` with ``heads``; all bounded when accepted."""

    request: str
    instruction: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    heads: tuple[str, ...]
    identity: str
    deadline: int | None = None
    after: str | None = None


@attrs.frozen
class SubmitPreparation:
    """Prefill, while idle, the known head of a prompt to come.

    ``tokens`` begin with ``standing`` tokens of instructions and tools; the rest is history. Whole chunks of the grid
    are prefilled; the tokens behind the last of them are left to the foreground. A newer preparation of the same
    ``conversation`` supersedes this one.
    """

    request: str
    tokens: tuple[int, ...]
    standing: int
    identity: str
    conversation: str = ""
    after: str | None = None


@attrs.frozen
class PinConversation:
    """Keep what is retained for a conversation from being evicted, or let go of it again."""

    conversation: str
    pinned: bool = True


@attrs.frozen
class ReleaseConversation:
    """Give up what is retained for a conversation."""

    conversation: str


@attrs.frozen
class StorePrefix:
    """Write the longest retained prefix of ``tokens`` to ``path``, for use within ``launch``."""

    request: str
    tokens: tuple[int, ...]
    identity: str
    path: str
    launch: str


@attrs.frozen
class FetchPrefix:
    """Retain what a file holds; its header was read and is checked again by the step that reads the rest."""

    request: str
    file: PrefixFile


@attrs.frozen
class Cancel:
    """The client no longer wants the request; at most the running segment is still paid for."""

    request: str
    reason: str = "cancelled"


@attrs.frozen
class Expire:
    """A request's deadline has come."""

    request: str


# --- to the device controller ---------------------------------------------------------------------------------


@attrs.frozen
class Wake:
    """A time has come at which a preparation may go on."""


@attrs.frozen
class SubmitStep:
    """Ask for the device."""

    step: StepRequest


@attrs.frozen
class WithdrawStep:
    """Give a step up: waiting or suspended it is gone at once, running it stops at its next segment."""

    step: str


@attrs.frozen
class PromoteStep:
    """A step now belongs to more urgent work; where it stands it stays."""

    step: str
    request: str
    work_class: WorkClass
    arrived: int


@attrs.frozen
class Settled:
    """The owner's answer to a settling ``StepDone``: what it wants next, known before the device chooses again."""

    step: str
    next: tuple[StepRequest, ...] = ()


@attrs.frozen
class Finished:
    """The step ran to its end (a decode run may have ended early, on a token, because it was told to yield)."""

    result: StepResult
    measured: Measured


@attrs.frozen
class Suspended:
    """The step stopped after a segment, its activations kept."""

    measured: Measured


@attrs.frozen
class Failed:
    """The step raised; ``sticky`` when the device cannot go on. Requests in ``shown`` have had tokens of it."""

    error: CoresidentError
    sticky: bool = False
    shown: tuple[str, ...] = ()


@attrs.frozen
class Withdrawn:
    """The step was given up before its end; what it had not finished is gone. ``measured`` where it ran."""

    measured: Measured | None = None


@attrs.frozen
class GrantEnded:
    """From the executor: how the running grant ended."""

    grant: int
    outcome: Finished | Suspended | Failed | Withdrawn


@attrs.frozen
class Discharge:
    """Return what ``owner`` keeps charged to ``account``, or ``amount`` bytes of it: a retained prefix is gone."""

    account: str
    owner: str
    amount: int | None = None


@attrs.frozen
class ResetDevice:
    """Recovery begins: forget the fault, every charge is back at zero."""


@attrs.frozen
class StepRefused:
    """The step can never run: it asks for more than the budget or the partition has, or the device is gone."""

    error: CoresidentError


@attrs.frozen
class StepDone:
    """To a step's owner: how it ended, and the ``decisions`` that asked so far. ``settle`` awaits one ``Settled``."""

    step: str
    outcome: Finished | Failed | Withdrawn | StepRefused
    settle: bool
    decisions: int = 0


# --- supervision ----------------------------------------------------------------------------------------------


@attrs.frozen
class Start:
    """Load everything."""


@attrs.frozen
class Recover:
    """``retry``: start again with the weights that are there. ``repair``: load the weights again."""

    action: str


@attrs.frozen
class DeviceFault:
    """From the device controller: it cannot go on."""

    error: CoresidentError


@attrs.frozen
class Available:
    """To model actors: requests may run."""


@attrs.frozen
class Unavailable:
    """To model actors: fail open requests and refuse new ones; with ``restart`` those wait that may be run again."""

    error: CoresidentError
    restart: bool = False


@attrs.frozen
class Close:
    """End: open requests fail with ``Closed``, models are unloaded."""


@attrs.frozen
class Drained:
    """From a model actor, once for each ``Unavailable`` and ``Close``: no request is open, nothing is on the device."""

    actor: str


Message: TypeAlias = (
    SubmitGeneration
    | SubmitDecision
    | SubmitPreparation
    | PinConversation
    | ReleaseConversation
    | StorePrefix
    | FetchPrefix
    | Cancel
    | Expire
    | Wake
    | SubmitStep
    | WithdrawStep
    | PromoteStep
    | Settled
    | GrantEnded
    | Discharge
    | ResetDevice
    | StepDone
    | Start
    | Recover
    | DeviceFault
    | Available
    | Unavailable
    | Close
    | Drained
)
