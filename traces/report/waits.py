"""Who waited how long, and what had the device meanwhile; when answers came."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict

import attrs

from ..events_schedule import EndDecision, EndGeneration, EndPreparation, Grant, Refuse, Tokens
from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from ..format import Event
from .bins import BINS, Bins
from .distribution import Distribution
from .occupancy import LANES, Occupancy

WORST = 3


@attrs.frozen(order=False)
class Waiter:
    """A request that waited ``ns`` for its first grant; ``meanwhile`` is who had the device how long.

    ``served`` is false for one that ended, or was open at the end of the trace, without ever having the device.
    """

    request: str
    work_class: str
    arrived: int
    ns: int
    served: bool
    meanwhile: tuple[tuple[str, int], ...]


@attrs.frozen
class _Open:
    work_class: str
    arrived: int
    held: tuple[int, ...]


class Waits:
    """Takes the events of a run in order, each after ``occupancy`` has.

    Distributions are by class, in nanoseconds: ``waits`` from arrival to first grant, ``latencies`` from arrival to the
    end of what completed, ``firsts`` and ``gaps`` of tokens. ``by_arrival`` has the longest wait of those that came
    within a bin. Without a ``device``, of a run whose source tells only tokens and ends, nothing waits.
    """

    def __init__(self, occupancy: Occupancy, bins: int = BINS, device: bool = True) -> None:
        self._occupancy = occupancy
        self._device = device
        self._waiting: dict[str, _Open] = {}
        self._granted: dict[str, tuple[str, int]] = {}
        self._worst: dict[str, list[tuple[int, int, Waiter]]] = {}
        self._order = 0
        self.waits: dict[str, Distribution] = defaultdict(Distribution)
        self.latencies: dict[str, Distribution] = defaultdict(Distribution)
        self.firsts: dict[str, Distribution] = defaultdict(Distribution)
        self.gaps: dict[str, Distribution] = defaultdict(Distribution)
        self.by_arrival = Bins(max, bins)
        self.never: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case ArriveGeneration():
                self._arrive(event.request, event.work_class, event.at)
            case ArriveDecision():
                self._arrive(event.request, "decision", event.at)
            case ArrivePreparation():
                self._arrive(event.request, "preparation", event.at)
            case Grant():
                for request in event.requests:
                    self._grant(request, event.at)
            case Tokens(request=request, gaps_ns=(first, *gaps)) if request in self._granted:
                work_class = self._granted[request][0]
                self.firsts[work_class].add(first)
                for gap, times in Counter(gaps).items():
                    self.gaps[work_class].add(gap, times)
            case EndGeneration() | EndDecision() | EndPreparation():
                self._end(event)
            case Refuse(request=request):
                self._waiting.pop(request, None)
                self._granted.pop(request, None)
            case _:
                pass

    def worst(self, work_class: str) -> list[Waiter]:
        """Those that waited longest, the longest first, and of equals the first."""
        return [entry[-1] for entry in sorted(self._worst.get(work_class, []), reverse=True)]

    def close(self, at: int) -> None:
        """The trace ends: who still waits has waited until now."""
        for request in list(self._waiting):
            self._give_up(request, at)

    def _arrive(self, request: str, work_class: str, at: int) -> None:
        if self._device:
            self._waiting[request] = _Open(work_class, at, self._occupancy.held(at))
        else:
            self._granted[request] = (work_class, at)

    def _grant(self, request: str, at: int) -> None:
        if request in self._waiting:
            waiting = self._waited(request, at, served=True)
            self._granted[request] = (waiting.work_class, waiting.arrived)
            self.waits[waiting.work_class].add(at - waiting.arrived)

    def _end(self, end: EndGeneration | EndDecision | EndPreparation) -> None:
        if end.request in self._waiting:
            self._give_up(end.request, end.at)
        elif end.request in self._granted:
            work_class, arrived = self._granted.pop(end.request)
            if end.outcome in ("completed", "prepared"):
                self.latencies[work_class].add(end.at - arrived)

    def _give_up(self, request: str, at: int) -> None:
        self.never[self._waited(request, at, served=False).work_class] += 1

    def _waited(self, request: str, at: int, served: bool) -> _Open:
        waiting = self._waiting.pop(request)
        ns = at - waiting.arrived
        self.by_arrival.add(waiting.work_class, waiting.arrived, ns)
        held = zip(LANES, self._occupancy.held(at), waiting.held, strict=True)
        meanwhile = tuple((lane, now - then) for lane, now, then in held if now > then)
        waiter = Waiter(request, waiting.work_class, waiting.arrived, ns, served, meanwhile)
        self._order += 1
        worst = self._worst.setdefault(waiting.work_class, [])
        heapq.heappush(worst, (ns, -self._order, waiter))
        if len(worst) > WORST:
            heapq.heappop(worst)
        return waiting
