"""Statistics of a run, in one pass over its events.

Everything counts from what the trace says: arrivals, grants, ends of grants, token times. Queue wait is from arrival
to the first grant that serves the request; time to first token and gaps between tokens are as its client could see
them; service is device time, of a shared decode run the request's equal part; latency is from arrival to end, of
requests that completed. Times are integer nanoseconds, percentiles by nearest rank: exact up to a million values of a
kind, and within 0.2 % beyond (``quantiles.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from .checkpoint_tally import CheckpointStatistics, CheckpointTally
from .device_tally import DeviceFigures, DeviceTally
from .events_messages import Took
from .events_schedule import EndDecision, EndGeneration, EndPreparation, Grant, Refuse, Reuse, Step, Tokens
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from .fields import CLASSES
from .format import Event
from .preparations import PreparationStatistics, PreparationTally
from .quantiles import Samples, Spread

PREPARATION = "preparation"
_AS = {
    "prepared": "completed",
    "promoted": "completed",
    "superseded": "cancelled",
    "declined": "cancelled",
    "cancelled": "cancelled",
    "failed": "failed",
}


@attrs.frozen
class ClassStatistics:
    """Requests of one work class.

    ``abstained`` counts by reason, ``failed`` and ``refused`` by type of error; ``open`` did not end.

    ``decode_rate`` is tokens a second between first and last tokens, ``rate`` over the time from the first arrival to
    the last end. ``reused`` of ``prompt_tokens`` came from retained prefixes. A decision's prompt is its instruction
    and all its rows, of which only the instruction can be reused.
    ``foreign_segments`` bounds, for each decision, the segments of other work between its arrival and its first
    grant. ``prepared`` of the reused tokens a preparation had computed.

    A preparation counts as completed when it was prepared or taken over by a request, and as cancelled when it was
    superseded or declined; its prompt is what it was to prefill.
    """

    requests: int
    completed: int
    cancelled: int
    abstained: Mapping[str, int]
    failed: Mapping[str, int]
    refused: Mapping[str, int]
    open: int
    queue_wait: Spread
    service: Spread
    latency: Spread
    first_token: Spread
    gaps: Spread
    tokens: int
    decode_rate: float | None
    rate: float | None
    prompt_tokens: int
    reused: int
    prepared: int
    foreign_segments: Spread

    @property
    def reuse_share(self) -> float | None:
        """Part of the prompt tokens that was not computed again."""
        return self.reused / self.prompt_tokens if self.prompt_tokens else None


@attrs.frozen
class TraceStatistics:
    """Statistics of a whole run; classes without a request are left out, ``preparation`` is ``None`` without any.

    ``checkpoints`` are those of prefixes to ``store`` in files and to ``fetch``.
    """

    classes: Mapping[str, ClassStatistics]
    device: DeviceFigures
    span_ns: int
    preparation: PreparationStatistics | None = None
    checkpoints: Mapping[str, CheckpointStatistics] = attrs.field(factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = attrs.asdict(self)
        for name, entry in self.classes.items():
            data["classes"][name]["reuse_share"] = entry.reuse_share
        data["device"]["utilisation"] = self.device.utilisation
        data["device"]["shares"] = {name: self.device.share(name) for name in self.classes}
        return data


@attrs.define
class _Request:
    work_class: str
    arrived: int
    granted: bool = False
    service: int = 0


@attrs.define
class _Class:
    """What one class adds up to."""

    requests: int = 0
    ends: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    waits: Samples = attrs.field(factory=Samples)
    services: Samples = attrs.field(factory=Samples)
    latencies: Samples = attrs.field(factory=Samples)
    firsts: Samples = attrs.field(factory=Samples)
    gaps: Samples = attrs.field(factory=Samples)
    segments: Samples = attrs.field(factory=Samples)
    tokens: int = 0
    prompt: int = 0
    reused: int = 0
    prepared: int = 0
    begin: int | None = None
    end: int = 0

    def by_reason(self, outcome: str) -> dict[str, int]:
        return {reason: count for (kind, reason), count in sorted(self.ends.items()) if kind == outcome}

    def result(self) -> ClassStatistics:
        gaps = self.gaps.spread()
        span = self.end - self.begin if self.begin is not None else 0
        return ClassStatistics(
            requests=self.requests,
            completed=sum(self.by_reason("completed").values()),
            cancelled=sum(self.by_reason("cancelled").values()),
            abstained=self.by_reason("abstained"),
            failed=self.by_reason("failed"),
            refused=self.by_reason("refused"),
            open=self.requests - self.ends.total(),
            queue_wait=self.waits.spread(),
            service=self.services.spread(),
            latency=self.latencies.spread(),
            first_token=self.firsts.spread(),
            gaps=gaps,
            tokens=self.tokens,
            decode_rate=gaps.count * 1e9 / gaps.total if gaps.total else None,
            rate=self.tokens * 1e9 / span if span > 0 and self.tokens else None,
            prompt_tokens=self.prompt,
            reused=self.reused,
            prepared=self.prepared,
            foreign_segments=self.segments.spread(),
        )


class Tally:
    """Takes events in order; ``result`` may be asked for at any time."""

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}
        self._open: dict[str, _Request] = {}
        self._device = DeviceTally()
        self._preparations = PreparationTally()
        self._checkpoints = CheckpointTally()
        self._last = 0

    def add(self, event: Event) -> None:
        """Count one event. That a message was taken is none of them."""
        match event:
            case Grant():
                self._last = event.at
                self._device.granted(event)
                self._preparations.granted(event)
                self._granted(event)
            case Step(measured=measured):
                self._last = event.at
                self._device.stepped(event)
                self._preparations.stepped(event)
                if measured is not None:
                    self._served(self._device.requests_of(event.grant), measured.device_ns)
            case Took():
                pass
            case _:
                self._last = event.at
                self._device.add(event)
                self._preparations.add(event)
                self._checkpoints.add(event)
                self._add(event)

    def _add(self, event: Event) -> None:
        match event:
            case ArriveGeneration():
                self._arrive(event.request, event.work_class, event.at)
            case ArriveDecision():
                self._arrive(event.request, "decision", event.at)
                self._classes["decision"].prompt += event.instruction.tokens + sum(row.tokens for row in event.rows)
            case ArrivePreparation():
                self._arrive(event.request, PREPARATION, event.at)
            case Reuse():
                self._class_of(event.request).reused += event.reused
                self._class_of(event.request).prompt += event.prompt
                self._class_of(event.request).prepared += self._preparations.reuse(event)
            case Tokens(request=request, gaps_ns=(first, *gaps)):
                self._class_of(request).firsts.append(first)
                self._class_of(request).gaps.extend(gaps)
            case EndGeneration():
                self._class_of(event.request).tokens += event.tokens
                self._end(event.request, event.outcome, event.error or event.reason, event.at)
            case EndDecision():
                self._class_of(event.request).reused += event.instruction_reused
                self._end(event.request, event.outcome, event.reason, event.at)
            case EndPreparation():
                self._class_of(event.request).reused += event.reused
                self._class_of(event.request).prompt += event.goal
                self._end(event.request, _AS[event.outcome], event.error or event.outcome, event.at)
            case Refuse(request=request, error=error):
                self._end(request, "refused", error, event.at)
            case _:
                pass

    def result(self) -> TraceStatistics:
        """Statistics of what was added so far."""
        classes = {name: self._classes[name].result() for name in CLASSES if name in self._classes}
        device, preparations = self._device.result(self._last), self._preparations.result()
        return TraceStatistics(classes, device, self._last, preparations, self._checkpoints.result())

    def _arrive(self, request: str, work_class: str, at: int) -> None:
        entry = self._classes.setdefault(work_class, _Class())
        entry.requests += 1
        entry.begin = at if entry.begin is None else entry.begin
        self._open[request] = _Request(work_class, at)
        if work_class == "decision":
            self._device.watch(request)

    def _granted(self, grant: Grant) -> None:
        for name in grant.requests:
            request = self._open.get(name)
            if request is None or request.granted:
                continue
            request.granted = True
            entry = self._classes[request.work_class]
            entry.waits.append(grant.at - request.arrived)
            if request.work_class == "decision":
                entry.segments.append(self._device.unwatch(name, grant.at - grant.waited_ns))

    def _served(self, requests: tuple[str, ...], device_ns: int) -> None:
        for name in requests:
            request = self._open.get(name)
            if request is not None:
                request.service += device_ns // len(requests)

    def _class_of(self, request: str) -> _Class:
        return self._classes[self._open[request].work_class]

    def _end(self, name: str, outcome: str, reason: str, at: int) -> None:
        request = self._open.pop(name)
        self._device.unwatch(name)
        entry = self._classes[request.work_class]
        entry.ends[outcome, reason] += 1
        entry.end = at
        if request.granted:
            entry.services.append(request.service)
        if outcome == "completed":
            entry.latencies.append(at - request.arrived)
