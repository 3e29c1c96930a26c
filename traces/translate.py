"""From what a host's observers see to the events of a trace.

The recorder and live statistics share this, so both say the same. It holds what is open, and which requests ended
lately, so that a request which names the one it came after is recorded with its think time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import attrs

from ..actors import events as seen
from ..actors.effects import Effect, Notify, Report, RunGrant
from ..actors.errors import CoresidentError
from ..actors.messages import (
    Cancel,
    Finished,
    PinConversation,
    ReleaseConversation,
    StepDone,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
)
from ..actors.work import DecodeWork, Grant, Measured
from ..runtime.host.observers import Delivery
from . import events_schedule as schedule
from .blocks import BlockTable
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest, Content, Pin, Release
from .format import Event
from .header import BLOCK
from .outcomes import ENDS, End

_REMEMBERED = 65_536
_Submit: TypeAlias = SubmitGeneration | SubmitDecision | SubmitPreparation


@attrs.define
class _Open:
    """A request between its arrival and its end; ``latest`` is the time of its arrival or newest token."""

    prompt: tuple[int, ...]
    latest: int
    gaps: list[int] = attrs.field(factory=list)
    output: list[int] = attrs.field(factory=list)


class Translator:
    """Turns deliveries into events, in order. ``ids`` puts token ids into them."""

    def __init__(self, ids: bool = False) -> None:
        self._ids = ids
        self._blocks = BlockTable(BLOCK)
        self._origin: int | None = None
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, int] = {}

    def token(self, request: str, at: int) -> None:
        """A token was made; it is told with all others at the request's end."""
        entry = self._open.get(request)
        if entry is not None:
            at = max(at, entry.latest)
            entry.gaps.append(at - entry.latest)
            entry.latest = at

    def delivery(self, delivery: Delivery) -> Iterator[Event]:
        """Events of one delivery."""
        if self._origin is None:
            self._origin = delivery.at
        at = delivery.at - self._origin
        match delivery.message:
            case SubmitGeneration() | SubmitDecision() | SubmitPreparation() as submit:
                if submit.request in self._open:
                    # The actor refuses an id that is open; the request it belongs to goes on.
                    return
                yield self._arrive(submit, at, delivery.at)
            case Cancel(request, reason) if request in self._open:
                entry = self._open[request]
                yield CancelRequest(at, request, reason, len(entry.gaps), delivery.at - entry.latest)
            case PinConversation(conversation, pinned):
                yield Pin(at, conversation, pinned)
            case ReleaseConversation(conversation):
                yield Release(at, conversation)
            case StepDone(outcome=Finished(result=result)):
                for row in result.rows:
                    if row.request in self._open:
                        self._open[row.request].output += row.tokens
            case _:
                pass
        granted = next((effect.grant for effect in delivery.effects if isinstance(effect, RunGrant)), None)
        for effect in delivery.effects:
            yield from self._effect(effect, granted, at)

    # --- arrivals -----------------------------------------------------------------------------------------------

    def _arrive(self, submit: _Submit, at: int, now: int) -> Event:
        prompt = submit.prompt if isinstance(submit, SubmitGeneration) else ()
        self._open[submit.request] = _Open(prompt, now)
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

    def _effect(self, effect: Effect, granted: Grant | None, at: int) -> Iterator[Event]:
        match effect:
            case Report(seen.Granted() as event):
                yield _grant(event, granted, at)
            case Notify(event) if isinstance(event, ENDS) and event.request in self._open:
                yield from self._ending(event, at)
            case Notify(seen.PrefixReused(request, prompt, matched, reused, kind, handle, giver)):
                yield schedule.Reuse(at, request, prompt, matched, reused, kind, handle, giver)
            case Notify(seen.PreparationAdvanced(request, position, goal)):
                yield schedule.Advance(at, request, position, goal)
            case Report(event):
                yield from self._report(event, at)
            case _:
                pass

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

    @staticmethod
    def _report(event: seen.ScheduleEvent, at: int) -> Iterator[Event]:
        match event:
            case seen.Released(grant, step, outcome, measured):
                yield schedule.Step(at, grant, step, outcome, _measures(measured))
            case seen.YieldAsked(grant, step, to):
                yield schedule.Yield(at, grant, step, to)
            case seen.PrefixRetained(model, handle, tokens, size, request):
                yield schedule.Retain(at, model, handle, tokens, size, request)
            case seen.PreparationSeated(request, reused, held, giver):
                yield schedule.Seat(at, request, reused, held, giver)
            case seen.PrefixDropped(model, handle, tokens, size, why):
                yield schedule.Drop(at, model, handle, tokens, size, why)
            case seen.ReadinessChanged():
                yield schedule.Ready(at, event.revision, event.state, event.admitted_context, _name(event.error))
            case seen.LedgerChanged(reserved, used, workspace, partition):
                yield schedule.LedgerState(at, reserved, used, workspace, partition)
            case seen.ChargeExceeded(step, charge, measured_bytes):
                yield schedule.ChargeFault(at, step, charge, measured_bytes)
            case seen.PolicyFaulted(policy, error):
                yield schedule.PolicyFaulted(at, policy, error.message)


def _grant(event: seen.Granted, granted: Grant | None, at: int) -> schedule.Grant:
    """A grant and every request that its step serves: a decode run may carry several."""
    requests: tuple[str, ...] = () if event.request == event.step else (event.request,)
    if granted is not None and isinstance(granted.step.work, DecodeWork):
        requests = tuple(row.request for row in granted.step.work.rows)
    shape = event.shape
    return schedule.Grant(
        at=at,
        grant=event.grant,
        step=event.step,
        owner=event.owner,
        requests=requests,
        work_class=event.work_class.label,
        kind=event.kind.value,
        charge=event.charge,
        waited_ns=event.waited_ns,
        resumed=event.resumed,
        rows=shape.rows if shape else None,
        tokens=shape.tokens if shape else None,
        context=shape.context if shape else None,
    )


def _name(error: CoresidentError | None) -> str | None:
    return None if error is None else type(error).__name__


def _measures(measured: Measured | None) -> schedule.Measures | None:
    if measured is None:
        return None
    return schedule.Measures(
        measured.workspace,
        measured.device_ns,
        measured.segments,
        measured.longest_segment_ns,
        measured.step_ns,
    )
