"""Notable things of a run in words, in the order in which they happened."""

from __future__ import annotations

import attrs

from ..traces.events_schedule import (
    ChargeFault,
    Drop,
    EndCheckpoint,
    EndDecision,
    EndGeneration,
    EndPreparation,
    Grant,
    PolicyFaulted,
    Ready,
    Refuse,
    Reuse,
    Seat,
    Step,
    Tokens,
    Yield,
)
from ..traces.events_workload import ArriveCheckpoint, ArriveDecision, ArriveGeneration, ArrivePreparation, Pin, Release
from ..traces.format import Event
from .wording import duration, shown, size

_DOING = {"prefill": "the prefill", "decode": "the decoding", "decision": "the scoring"}


@attrs.frozen
class Moment:
    """Something notable, ``at`` nanoseconds from the first message."""

    at: int
    words: str


@attrs.define
class _Request:
    """What is known of an open request; ``interrupted`` is what gave way to it."""

    label: str
    arrived: int
    first_ns: int | None = None
    interrupted: str = ""
    gave_way: int = 0
    taken_by: str = ""
    taken_at: int = 0


class Timeline:
    """Takes events in order; ``moments`` grows."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._open: dict[str, _Request] = {}
        self._running: Grant | None = None
        self._yields: dict[str, str] = {}
        self._files: dict[str, str] = {}

    def add(self, event: Event) -> None:
        """Take one event."""
        words = self._words(event)
        if words:
            self.moments.append(Moment(event.at, shown(words)))

    def _words(self, event: Event) -> str:
        match event:
            case ArriveGeneration(work_class=work_class):
                self._open[event.request] = _Request(f"{work_class} {event.request}", event.at)
            case ArriveDecision():
                self._open[event.request] = _Request(f"decision {event.request}", event.at)
            case ArrivePreparation():
                self._open[event.request] = _Request(f"preparation {event.request}", event.at)
            case ArriveCheckpoint(action=action):
                self._files[event.request] = action
            case EndCheckpoint():
                return _filed(event, self._files.pop(event.request, "file"))
            case Grant() | Yield() | Step():
                self._device(event)
            case Reuse(taken_from=str() as giver) | Seat(taken_from=str() as giver) if giver in self._open:
                self._open[giver].taken_by, self._open[giver].taken_at = event.request, event.reused
            case Tokens(request=request, gaps_ns=(first, *_)):
                self._open[request].first_ns = first
            case EndGeneration() | EndDecision() | EndPreparation() | Refuse():
                return self._ended(event, self._open.pop(event.request))
            case Ready(state="ready", context=context):
                return f"ready, with a context of {context:,} tokens"
            case Ready(state=state, error=error) if state != "starting":
                return state if error is None else f"{state}: {error}"
            case Pin(pinned=pinned):
                return f"what is retained for {_whose(event)} is {'pinned' if pinned else 'no longer pinned'}"
            case Release():
                return f"what is retained for {_whose(event)} is released"
            case Drop(why="evicted" | "invalidated" | "released", tokens=tokens, bytes=count):
                return f"a retained prefix of {tokens:,} tokens ({size(count)}) is {event.why}"
            case ChargeFault():
                return f"step {event.step} used {size(event.measured)}, and was charged {size(event.charge)}"
            case PolicyFaulted():
                return f"the {event.policy} policy failed and was replaced: {event.error}"
            case _:
                pass
        return ""

    def _device(self, event: Grant | Yield | Step) -> None:
        """Who interrupts whom."""
        match event:
            case Grant():
                self._running = event
                what = self._yields.pop(event.step, "")
                for request in event.requests:
                    if what and request in self._open:
                        self._open[request].interrupted = what
            case Yield(to=str() as to) if self._running is not None and self._running.grant == event.grant:
                doing = _DOING.get(self._running.kind, f"a {self._running.kind} step")
                self._yields[to] = " ".join([doing, "of", ", ".join(self._running.requests) or self._running.owner])
            case Step(outcome="suspended") if self._running is not None and self._running.grant == event.grant:
                for request in self._running.requests:
                    if request in self._open:
                        self._open[request].gave_way += 1
            case _:
                pass

    def _ended(self, event: EndGeneration | EndDecision | EndPreparation | Refuse, request: _Request) -> str:
        if isinstance(event, Refuse):
            return f"{request.label} is refused: {event.error}"
        if isinstance(event, EndPreparation):
            return _prepared(event, request)
        reason = f" ({event.error or event.reason})" if event.error or event.reason else ""
        words = f"{request.label} {event.outcome}{reason}"
        if isinstance(event, EndDecision):
            words += f" after {duration(event.at - request.arrived)}"
        else:
            first = "" if request.first_ns is None else f", the first after {duration(request.first_ns)}"
            words += f": {_tokens(event.tokens)}{first}; {event.reused:,} of {event.prompt:,} prompt tokens reused"
        return words + (f"; it interrupted {request.interrupted}" if request.interrupted else "")


def _prepared(event: EndPreparation, request: _Request) -> str:
    there = event.reused + event.computed - event.wasted
    words = f"{request.label} {event.outcome}{f' ({event.error})' if event.error else ''}"
    if request.taken_by:
        words += f": {request.taken_by} takes it over at token {request.taken_at:,} of {event.goal:,}"
    else:
        words += f": {min(there, event.goal):,} of {_tokens(event.goal)} there, {event.computed:,} of them computed"
    if request.gave_way:
        words += f"; it gave way {request.gave_way} {'time' if request.gave_way == 1 else 'times'}"
    return words


def _filed(event: EndCheckpoint, action: str) -> str:
    reason = event.error or event.reason
    words = f"{action} of a prefix {event.request} {event.outcome}{f' ({reason})' if reason else ''}"
    return words + (f": {_tokens(event.tokens)}, {size(event.bytes)}" if event.outcome == "completed" else "")


def _whose(event: Pin | Release) -> str:
    return event.conversation or "no conversation"


def _tokens(count: int) -> str:
    return f"{count:,} token" if count == 1 else f"{count:,} tokens"
