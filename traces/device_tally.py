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

from .events_schedule import ChargeFault, Drop, Grant, LedgerState, PolicyFaulted, Retain, Step, Yield
from .format import Event


@attrs.frozen
class KindStatistics:
    """Grants and device time of one kind of step."""

    grants: int
    device_ns: int


@attrs.frozen
class DeviceFigures:
    """Sizes in bytes.

    ``workspace_charged`` and ``workspace_measured`` are peaks; ``reserved`` is the peak of the partition's ledger.
    ``classes`` is device time by the work class that had it.
    """

    span_ns: int
    busy_ns: int
    kinds: Mapping[str, KindStatistics]
    classes: Mapping[str, int]
    longest_segment_ns: int
    partition: int
    reserved: int
    workspace_charged: int
    workspace_measured: int
    retained: int
    yields: int
    suspensions: int
    drops: int
    failures: int
    charges_exceeded: int
    policy_faults: int

    @property
    def utilisation(self) -> float | None:
        """Part of the time that the device worked."""
        return self.busy_ns / self.span_ns if self.span_ns else None

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
        self._waiting: dict[str, list[tuple[int, int]]] = {}
        self._kinds: Counter[str] = Counter()
        self._times: Counter[str] = Counter()
        self._classes: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._held = 0
        self._most: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Grant():
                self._running = _Running(event)
                if not event.resumed:
                    self._charges[event.step] = event.charge
                self._kinds[event.kind] += 1
                self._peak("charged", sum(self._charges.values()))
            case Yield(grant=grant):
                self._counts["yields"] += 1
                if self._running is not None and self._running.grant.grant == grant:
                    self._running.yielding = True
            case Step():
                self._step(event)
            case LedgerState(reserved=reserved, partition=partition):
                self._peak("reserved", reserved)
                self._peak("partition", partition)
            case Retain(bytes=size):
                self._held += size
                self._peak("retained", self._held)
            case Drop(bytes=size):
                self._held -= size
            case ChargeFault():
                self._counts["exceeded"] += 1
            case PolicyFaulted():
                self._counts["policy"] += 1
            case _:
                pass

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
            busy_ns=self._times.total(),
            kinds=kinds,
            classes=dict(sorted(self._classes.items())),
            longest_segment_ns=self._most["segment"],
            partition=self._most["partition"],
            reserved=self._most["reserved"],
            workspace_charged=self._most["charged"],
            workspace_measured=self._most["workspace"],
            retained=self._most["retained"],
            yields=self._counts["yields"],
            suspensions=self._counts["suspended"],
            drops=self._counts["dropped"],
            failures=self._counts["failed"],
            charges_exceeded=self._counts["exceeded"],
            policy_faults=self._counts["policy"],
        )

    def _step(self, step: Step) -> None:
        self._counts[step.outcome] += 1
        if step.outcome != "suspended":
            self._charges.pop(step.step, None)
        running = self._running
        if running is None or running.grant.grant != step.grant:
            return
        self._running, self._ended = None, (step.grant, running.grant.requests)
        measured = step.measured
        if measured is not None:
            self._times[running.grant.kind] += measured.device_ns
            self._classes[running.grant.work_class] += measured.device_ns
            self._peak("workspace", measured.workspace)
            self._peak("segment", measured.longest_ns)
        segments = 1 if running.yielding or measured is None else measured.segments
        if running.grant.work_class != "decision":
            for waited in self._waiting.values():
                waited.append((step.at, segments))

    def _peak(self, name: str, value: int) -> None:
        self._most[name] = max(self._most[name], value)
