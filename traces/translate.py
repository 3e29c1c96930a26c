"""From what a host's observers see to the events of a trace.

The recorder and live statistics share this, so both say the same. It holds what is open, and which requests ended
lately, so that a request which names the one it came after is recorded with its think time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from ..actors import events as seen
from ..actors.effects import Effect, Notify, Report, RunGrant
from ..actors.errors import CoresidentError
from ..actors.messages import (
    Cancel,
    FetchPrefix,
    Finished,
    Message,
    PinConversation,
    ReleaseConversation,
    StepDone,
    StorePrefix,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
)
from ..actors.work import DecodeWork, Measured, StepKind
from ..policies.views import WorkClass
from ..runtime.host.observers import Delivery
from . import events_schedule as schedule
from .blocks import BlockTable, Describes
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest, Content, Pin, Release
from .format import Arrival, Event
from .header import BLOCK
from .outcomes import ENDS, End
from .translate_files import FileTranslator

_REMEMBERED = 65_536
_TELLING = (Notify, Report)
_SUBMITS = (SubmitGeneration, SubmitDecision, SubmitPreparation, StorePrefix, FetchPrefix)
_LABELS = {work_class: work_class.label for work_class in WorkClass}
_Submit: TypeAlias = SubmitGeneration | SubmitDecision | SubmitPreparation
_Tellers: TypeAlias = Mapping[type[seen.Event], Callable[[Any, int], tuple[Event, ...]]]


@attrs.define
class _Open:
    """A request between its arrival and its end; ``latest`` is the time of its arrival or newest token."""

    prompt: tuple[int, ...]
    latest: int
    gaps: list[int] = attrs.field(factory=list)
    output: list[int] = attrs.field(factory=list)


class Translator:
    """Turns deliveries into events, in order. ``ids`` puts token ids into them."""

    def __init__(self, ids: bool = False, blocks: Describes | None = None) -> None:
        self._ids = ids
        self._blocks = blocks or BlockTable(BLOCK)
        self._origin: int | None = None
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, int] = {}
        self._files = FileTranslator()
        self._taken: Mapping[type[Message], Callable[[Any, int, int], tuple[Event, ...]]] = {
            **dict.fromkeys(_SUBMITS, self._arrive),
            **dict.fromkeys((StorePrefix, FetchPrefix), self._files.asked),
            Cancel: self._cancelled,
            StepDone: self._step_done,
            PinConversation: lambda m, at, _: (Pin(at, m.conversation, m.pinned),),
            ReleaseConversation: lambda m, at, _: (Release(at, m.conversation),),
        }
        ends = dict.fromkeys(ENDS, self._ended_with)
        self._told: _Tellers = {**_TOLD, **ends, seen.CheckpointEnded: self._files.ended}

    def token(self, request: str, at: int) -> None:
        """A token was made; it is told with all others at the request's end."""
        entry = self._open.get(request)
        if entry is not None:
            at = max(at, entry.latest)
            entry.gaps.append(at - entry.latest)
            entry.latest = at

    def delivery(self, delivery: Delivery) -> list[Event]:
        """Events of one delivery, in order."""
        self._blocks.trim()
        if self._origin is None:
            self._origin = delivery.at
        at = delivery.at - self._origin
        events: list[Event] = []
        taken = self._taken.get(type(delivery.message))
        if taken is not None:
            request = delivery.message.request if isinstance(delivery.message, _SUBMITS) else None
            if request is not None and (request in self._open or request in self._files):
                # The actor refuses an id that is open; the request it belongs to goes on.
                return events
            events += taken(delivery.message, at, delivery.at)
        for place, effect in enumerate(delivery.effects):
            if not isinstance(effect, _TELLING):
                continue
            told = self._told.get(type(effect.event))
            if told is not None:
                events += told(effect.event, at)
            elif isinstance(effect.event, seen.Granted):
                events.append(_grant(effect.event, delivery.effects[place:], at))
        return events

    # --- messages -----------------------------------------------------------------------------------------------

    def _cancelled(self, cancel: Cancel, at: int, now: int) -> tuple[Event, ...]:
        entry = self._open.get(cancel.request)
        if entry is None:
            return ()
        return (CancelRequest(at, cancel.request, cancel.reason, len(entry.gaps), now - entry.latest),)

    def _step_done(self, done: StepDone, at: int, now: int) -> tuple[Event, ...]:
        if isinstance(done.outcome, Finished):
            for row in done.outcome.result.rows:
                entry = self._open.get(row.request)
                if entry is not None:
                    entry.output += row.tokens
        return ()

    # --- arrivals -----------------------------------------------------------------------------------------------

    def _arrive(self, submit: _Submit, at: int, now: int) -> tuple[Event, ...]:
        prompt = submit.prompt if isinstance(submit, SubmitGeneration) else ()
        self._open[submit.request] = _Open(prompt, now)
        return (self.arrival(submit, at, now),)

    def arrival(self, submit: _Submit, at: int, now: int) -> Arrival:
        """What is told of a request that arrives at ``at`` of the recording, which is ``now`` on the host's clock."""
        ended = None if submit.after is None else self._ended.get(submit.after)
        think_ns = None if ended is None else at - ended
        if isinstance(submit, SubmitPreparation):
            return ArrivePreparation(
                at=at,
                request=submit.request,
                known=self._describe(submit.tokens),
                standing=submit.standing,
                identity=submit.identity,
                conversation=submit.conversation,
                after=submit.after,
                think_ns=think_ns,
            )
        deadline_ns = None if submit.deadline is None else max(0, submit.deadline - now)
        if isinstance(submit, SubmitDecision):
            return ArriveDecision(
                at=at,
                request=submit.request,
                instruction=self._describe(submit.instruction),
                rows=tuple(self._describe(row) for row in submit.rows),
                heads=submit.heads,
                identity=submit.identity,
                deadline_ns=deadline_ns,
                after=submit.after,
                think_ns=think_ns,
            )
        return ArriveGeneration(
            at=at,
            request=submit.request,
            work_class=submit.work_class.label,
            prompt=self._describe(submit.prompt),
            max_tokens=submit.max_tokens,
            identity=submit.identity,
            retain=submit.retain,
            conversation=submit.conversation,
            deadline_ns=deadline_ns,
            after=submit.after,
            think_ns=think_ns,
        )

    def _describe(self, tokens: tuple[int, ...]) -> Content:
        return self._blocks.describe(tokens, self._ids)

    # --- what became of them ------------------------------------------------------------------------------------

    def _ended_with(self, event: End, at: int) -> tuple[Event, ...]:
        return tuple(self._ending(event, at)) if event.request in self._open else self._files.refused(event, at)

    def _ending(self, event: End, at: int) -> Iterator[Event]:
        entry = self._open.pop(event.request)
        self._ended[event.request] = at
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]
        if isinstance(event, seen.Refused):
            yield schedule.Refuse(at, event.request, type(event.error).__name__)
        elif isinstance(event, seen.PreparationEnded):
            yield schedule.EndPreparation(
                at=at,
                request=event.request,
                outcome=event.outcome,
                goal=event.goal,
                reused=event.reused,
                computed=event.computed,
                wasted=event.wasted,
                error=_name(event.error),
            )
        elif isinstance(event, seen.DecisionEnded):
            yield schedule.EndDecision(
                at=at,
                request=event.request,
                outcome=event.outcome,
                reason=event.reason,
                rows=event.rows,
                tokens=event.tokens,
                instruction_reused=event.instruction_reused,
                error=_name(event.error),
            )
        else:
            if entry.gaps:
                yield schedule.Tokens(at, event.request, tuple(entry.gaps))
            output = tuple(entry.output)
            yield schedule.EndGeneration(
                at=at,
                request=event.request,
                outcome=event.outcome,
                reason=event.reason,
                prompt=event.prompt,
                reused=event.reused,
                prefilled=event.prefilled,
                tokens=event.tokens,
                whole=self._blocks.describe(entry.prompt + output) if output else None,
                output=output if self._ids and output else None,
                error=_name(event.error),
            )


def _grant(event: seen.Granted, effects: Sequence[Effect], at: int) -> schedule.Grant:
    """A grant and every request that its step serves: a decode run may carry several."""
    requests: tuple[str, ...] = () if event.request == event.step else (event.request,)
    if event.kind is StepKind.DECODE:
        granted = next((effect.grant for effect in effects if isinstance(effect, RunGrant)), None)
        if granted is not None and isinstance(granted.step.work, DecodeWork):
            requests = tuple([row.request for row in granted.step.work.rows])
    shape = event.shape
    return schedule.Grant(
        at,
        event.grant,
        event.step,
        event.owner,
        requests,
        _LABELS[event.work_class],
        event.kind.value,
        event.charge,
        event.waited_ns,
        event.resumed,
        shape.rows if shape else None,
        shape.tokens if shape else None,
        shape.context if shape else None,
    )


def _released(event: seen.Released, at: int) -> tuple[Event, ...]:
    return (schedule.Step(at, event.grant, event.step, event.outcome, _measures(event.measured)),)


def _reused(event: seen.PrefixReused, at: int) -> tuple[Event, ...]:
    reuse = schedule.Reuse(
        at, event.request, event.prompt, event.matched, event.reused, event.kind, event.handle, event.taken_from
    )
    return (reuse,)


def _ready(event: seen.ReadinessChanged, at: int) -> tuple[Event, ...]:
    return (schedule.Ready(at, event.revision, event.state, event.admitted_context, _name(event.error)),)


# Of events that are told as they are: the class in the trace, in whose order the fields are.
_TOLD: _Tellers = {
    seen.Released: _released,
    seen.PrefixReused: _reused,
    seen.ReadinessChanged: _ready,
    seen.PreparationAdvanced: lambda e, at: (schedule.Advance(at, e.request, e.position, e.goal),),
    seen.YieldAsked: lambda e, at: (schedule.Yield(at, e.grant, e.step, e.to),),
    seen.PrefixRetained: lambda e, at: (
        schedule.Retain(at, e.model, e.handle, e.tokens, e.bytes, e.request, e.shared, e.base),
    ),
    seen.PreparationSeated: lambda e, at: (schedule.Seat(at, e.request, e.reused, e.handle, e.taken_from),),
    seen.PrefixDropped: lambda e, at: (schedule.Drop(at, e.model, e.handle, e.tokens, e.bytes, e.why),),
    seen.LedgerChanged: lambda e, at: (schedule.LedgerState(at, e.reserved, e.used, e.workspace, e.partition),),
    seen.ChargeExceeded: lambda e, at: (schedule.ChargeFault(at, e.step, e.charge, e.measured),),
    seen.PolicyFaulted: lambda e, at: (schedule.PolicyFaulted(at, e.policy, e.error.message),),
}


def _name(error: CoresidentError | None) -> str | None:
    return None if error is None else type(error).__name__


def _measures(measured: Measured | None) -> schedule.Measures | None:
    if measured is None:
        return None
    m = measured
    return schedule.Measures(m.workspace, m.device_ns, m.segments, m.longest_segment_ns, m.step_ns)
