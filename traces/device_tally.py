"""What the device did: busy time by kind of step, workspace, ledger, preemptions.

Also counted here is what a decision waits for, from when its first step reaches the device controller: a grant that
ends in the hop before has not been waited for. A grant that was told to yield while the decision waited costs it one
segment, because the device looks at the flag after each; any other counts with all its segments. So the number is
never too low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs

from .events_schedule import ChargeFault, Drop, Grant, LedgerState, PolicyFaulted, Ready, Retain, Step, Yield
from .format import Event

SETTING_UP = ("load", "warmup")


@attrs.frozen
class KindStatistics:
    """Grants and device time of one kind of step."""

    grants: int
    device_ns: int


@attrs.frozen
class DeviceFigures:
    """Sizes in bytes.

    Loads and warm-ups are only in ``kinds``: ``busy_ns``, ``classes`` and ``longest_segment_ns`` are of the work after
    them. ``ready_ns`` is when the device could first serve; ``None`` if that was not told.
    ``workspace_charged`` and ``workspace_measured`` are peaks; ``reserved`` is the peak of the partition's ledger.
    ``classes`` is device time by the work class that had it. ``retained`` is the peak of retained prefixes, whose heads
    had ``shared_tokens`` that were stored already and not once more.
    """

    span_ns: int
    ready_ns: int | None
    busy_ns: int
    kinds: Mapping[str, KindStatistics]
    classes: Mapping[str, int]
    longest_segment_ns: int
    partition: int
    reserved: int
    workspace_charged: int
    workspace_measured: int
    retained: int
    shared_tokens: int
    yields: int
    suspensions: int
    drops: int
    failures: int
    charges_exceeded: int
    policy_faults: int

    @property
    def utilisation(self) -> float | None:
        """Part of the time since it was ready that the device worked."""
        span = self.span_ns - (self.ready_ns or 0)
        return self.busy_ns / span if span > 0 else None

    def share(self, work_class: str) -> float | None:
        """Part of the device's busy time that a class of work had."""
        return self.classes.get(work_class, 0) / self.busy_ns if self.busy_ns else None


@attrs.define
class _Running:
    grant: Grant
    yielding: bool = False


class DeviceTally:
    """Takes events in order."""

    def __init__(self) -> None:
        self._running: _Running | None = None
        self._ended: tuple[int, tuple[str, ...]] = (0, ())
        self._charges: dict[str, int] = {}
        self._charged = 0
        self._waiting: dict[str, list[tuple[int, int]]] = {}
        self._kinds: Counter[str] = Counter()
        self._times: Counter[str] = Counter()
        self._classes: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._held = 0
        self._ready: int | None = None
        self._most: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Grant():
                self.granted(event)
            case Step():
                self.stepped(event)
            case Ready(at=at, state="ready"):
                self._ready = at if self._ready is None else self._ready
            case Yield(grant=grant):
                self._counts["yields"] += 1
                if self._running is not None and self._running.grant.grant == grant:
                    self._running.yielding = True
            case LedgerState(reserved=reserved, partition=partition):
                self._peak("reserved", reserved)
                self._peak("partition", partition)
            case Retain(bytes=size, shared=shared):
                self._held += size
                self._counts["shared"] += shared
                self._peak("retained", self._held)
            case Drop(bytes=size):
                self._held -= size
            case ChargeFault():
                self._counts["exceeded"] += 1
            case PolicyFaulted():
                self._counts["policy"] += 1
            case _:
                pass

    def granted(self, grant: Grant) -> None:
        """The device was given to a step."""
        self._running = _Running(grant)
        if not grant.resumed:
            self._charged += grant.charge - self._charges.get(grant.step, 0)
            self._charges[grant.step] = grant.charge
        self._kinds[grant.kind] += 1
        self._peak("charged", self._charged)

    def requests_of(self, grant: int) -> tuple[str, ...]:
        """The requests of the grant that just ended."""
        return self._ended[1] if self._ended[0] == grant else ()

    def watch(self, request: str) -> None:
        """A request has arrived that waits for others' segments from now on."""
        self._waiting[request] = []

    def unwatch(self, request: str, since: int = 0) -> int:
        """The segments that it has waited for since its step was submitted."""
        return sum(segments for ended, segments in self._waiting.pop(request, ()) if ended > since)

    def result(self, span_ns: int) -> DeviceFigures:
        """Statistics of what was added so far."""
        kinds = {kind: KindStatistics(count, self._times[kind]) for kind, count in sorted(self._kinds.items())}
        return DeviceFigures(
            span_ns=span_ns,
            ready_ns=self._ready,
            busy_ns=sum(time for kind, time in self._times.items() if kind not in SETTING_UP),
            kinds=kinds,
            classes=dict(sorted(self._classes.items())),
            longest_segment_ns=self._most["segment"],
            partition=self._most["partition"],
            reserved=self._most["reserved"],
            workspace_charged=self._most["charged"],
            workspace_measured=self._most["workspace"],
            retained=self._most["retained"],
            shared_tokens=self._counts["shared"],
            yields=self._counts["yields"],
            suspensions=self._counts["suspended"],
            drops=self._counts["dropped"],
            failures=self._counts["failed"],
            charges_exceeded=self._counts["exceeded"],
            policy_faults=self._counts["policy"],
        )

    def stepped(self, step: Step) -> None:
        """A grant has ended, or what it had left suspended was given up."""
        self._counts[step.outcome] += 1
        if step.outcome != "suspended":
            self._charged -= self._charges.pop(step.step, 0)
        running = self._running
        if running is None or running.grant.grant != step.grant:
            return
        self._running, self._ended = None, (step.grant, running.grant.requests)
        measured = step.measured
        if measured is not None:
            self._times[running.grant.kind] += measured.device_ns
            self._peak("workspace", measured.workspace)
            if running.grant.kind not in SETTING_UP:
                self._classes[running.grant.work_class] += measured.device_ns
                self._peak("segment", measured.longest_ns)
        segments = 1 if running.yielding or measured is None else measured.segments
        if running.grant.work_class != "decision":
            for waited in self._waiting.values():
                waited.append((step.at, segments))

    def _peak(self, name: str, value: int) -> None:
        if value > self._most[name]:
            self._most[name] = value
