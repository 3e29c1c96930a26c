"""From deliveries to message lines: beside the translator, which says what a delivery means for the schedule.

Whether a message came from another actor is seen from the message itself: it is the very object that is the oldest on
its way to that mailbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from ..actors import errors
from ..actors.effects import Send
from ..actors.errors import CoresidentError
from ..actors.messages import (
    Cancel,
    DeviceFault,
    Expire,
    Failed,
    FetchPrefix,
    Finished,
    GrantEnded,
    Message,
    Recover,
    StorePrefix,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
)
from ..actors.work import Measured, RowResult, StepResult
from ..runtime.host.observers import Delivery
from .audit.charges import Charges
from .audit.digest import RunDigest
from .events_messages import Ended, Fault, File, Given, RowScored, RowTold, Took
from .events_schedule import Measures, Step
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest, Content
from .format import Arrival, Event
from .live_blocks import LiveBlocks

_ARRIVALS = (ArriveGeneration, ArriveDecision, ArrivePreparation)
Submit: TypeAlias = SubmitGeneration | SubmitDecision | SubmitPreparation


class MessageLog:
    """Writes ``took`` lines. ``describe`` numbers the blocks of a sequence, ``arrival`` describes a request."""

    def __init__(
        self,
        describe: Callable[[Sequence[int]], Content],
        arrival: Callable[[Submit, int, int], Arrival],
    ) -> None:
        self._describe = describe
        self._arrival = arrival
        self._mail: dict[str, deque[Message]] = {}
        self._digest = RunDigest()
        self._charges = Charges()
        self._origin: int | None = None
        self.live = LiveBlocks()

    def took(self, delivery: Delivery, events: Sequence[Event]) -> Took:
        """The line of a delivery that the translator told in ``events``."""
        given = None if self._was_sent(delivery) else self._given(delivery, events)
        for effect in delivery.effects:
            if isinstance(effect, Send):
                self._mail.setdefault(effect.to, deque()).append(effect.message)
        self.live.add(delivery, events, given)
        charges = self._charges.news(delivery.effects)
        return Took(
            at=delivery.at - (self._origin or 0),
            actor=delivery.actor,
            message=type(delivery.message).__name__,
            digest=self._digest.add(delivery, given, charges),
            given=given,
            charges=charges,
        )

    def _was_sent(self, delivery: Delivery) -> bool:
        mail = self._mail.get(delivery.actor)
        if not mail or mail[0] is not delivery.message:
            return False
        mail.popleft()
        return True

    def _given(self, delivery: Delivery, events: Sequence[Event]) -> Given:
        given = self._what(delivery, events)
        if self._origin is None:
            self._origin = delivery.at
            given = attrs.evolve(given, origin=delivery.at)
        return given

    def _what(self, delivery: Delivery, events: Sequence[Event]) -> Given:
        match delivery.message:
            case SubmitGeneration() | SubmitDecision() | SubmitPreparation() as submit:
                return self._submitted(submit, delivery.at, events)
            case Cancel(request, reason):
                told = any(isinstance(event, CancelRequest) for event in events)
                return Given() if told else Given(request=request, reason=reason)
            case Expire(request):
                return Given(request=request)
            case Recover(action):
                return Given(action=action)
            case StorePrefix(request, tokens, identity):
                return Given(request=request, file=File(self._describe(tokens), identity))
            case FetchPrefix(request, file):
                content = self._describe(file.tokens)
                return Given(request=request, file=File(content, file.identity, file.aligned, file.chunk))
            case GrantEnded() as ended:
                return Given(ended=_ended(ended, events))
            case DeviceFault(error):
                return Given(error=fault_of(error))
            case _:
                return Given()

    def _submitted(self, submit: Submit, at: int, events: Sequence[Event]) -> Given:
        deadline = None if isinstance(submit, SubmitPreparation) else submit.deadline
        overdue = 0 if deadline is None else max(0, at - deadline)
        if any(isinstance(event, _ARRIVALS) for event in events):
            return Given(overdue_ns=overdue)
        arrival = self._arrival(submit, at - (self._origin or 0), at)
        match arrival:
            case ArriveGeneration():
                return Given(overdue_ns=overdue, generation=arrival)
            case ArriveDecision():
                return Given(overdue_ns=overdue, decision=arrival)
            case ArrivePreparation():
                return Given(preparation=arrival)


def fault_of(error: CoresidentError) -> Fault:
    """An error by its type, and by the nearest type that :func:`error_of` knows."""
    name = type(error).__name__
    known = next(cls.__name__ for cls in type(error).__mro__ if getattr(errors, cls.__name__, None) is cls)
    return Fault(name) if known == name else Fault(name, known)


def error_of(fault: Fault) -> CoresidentError:
    """An error of that type. Raises ``ValueError`` for a type that the library does not have."""
    base = getattr(errors, fault.base or fault.error, None)
    if not (isinstance(base, type) and issubclass(base, CoresidentError)):
        raise ValueError(f"error is {fault.error!r}, of type {fault.base or fault.error!r}, which is not known")
    cls: type[CoresidentError] = type(fault.error, (base,), {}) if fault.base else base
    # Not by its own constructor: the numbers that some types ask for were not recorded.
    error: CoresidentError = Exception.__new__(cls)
    CoresidentError.__init__(error, f"{fault.error}, as recorded")
    return error


def _ended(message: GrantEnded, events: Sequence[Event]) -> Ended | None:
    """What the ``step`` line leaves out; ``None`` when that is nothing."""
    outcome = message.outcome
    told = next((event for event in events if isinstance(event, Step) and event.grant == message.grant), None)
    result = outcome.result if isinstance(outcome, Finished) else StepResult()
    ended = Ended(
        rows=tuple(_row(row) for row in result.rows),
        scores=tuple(RowScored(row.index, tuple(repr(float(value)) for value in row.values)) for row in result.scores),
        error=fault_of(outcome.error) if isinstance(outcome, Failed) else None,
        sticky=isinstance(outcome, Failed) and outcome.sticky,
        shown=outcome.shown if isinstance(outcome, Failed) else (),
        grant=message.grant if told is None else None,
        outcome=type(outcome).__name__.lower() if told is None else None,
        measured=None if told is not None or isinstance(outcome, Failed) else _measures(outcome.measured),
    )
    return None if ended == Ended() else ended


def _row(row: RowResult) -> RowTold:
    return RowTold(row.request, len(row.tokens), row.stop, None if row.error is None else fault_of(row.error))


def _measures(measured: Measured | None) -> Measures | None:
    if measured is None:
        return None
    return Measures(
        workspace=measured.workspace,
        device_ns=measured.device_ns,
        segments=measured.segments,
        longest_ns=measured.longest_segment_ns,
        step_ns=measured.step_ns,
    )
