"""Who had the device when, who gave way to whom, and what of it came to nothing."""

from __future__ import annotations

from collections import Counter

import attrs

from ..events_schedule import Grant, Step, Yield
from ..format import Event
from .bins import BINS, Bins, total
from .distribution import Distribution

OTHER = "other"
LANES = ("decision", "foreground", "utility", "preparation", OTHER)
"""The work classes in order of urgency, and loads and warm-ups, which nobody asked for."""

GIVEN_UP = ("withdrawn", "dropped", "failed")
CANCELLED = "a cancel"


@attrs.frozen
class Slice:
    """What the device did under one grant: times in nanoseconds, the charge in bytes; ``told`` to give way or not."""

    lane: str
    at: int
    ns: int
    kind: str
    step: str
    requests: tuple[str, ...]
    outcome: str
    resumed: bool
    told: bool
    waited_ns: int
    charge: int


class Occupancy:
    """Takes the events of a run in order.

    ``slices`` has every grant that ended, or is ``None`` when there were more than ``most``; ``shares`` has the
    nanoseconds of each lane by time, ``yields`` how often each was told to give way. ``interruptions`` counts
    ``(who, for whom)``, ``gave_way`` the times that it took, and ``given_up`` the device time of steps by how they
    ended without finishing.
    """

    def __init__(self, most: int, bins: int = BINS) -> None:
        self._most = most
        self._running: Grant | None = None
        self._told: int | None = None
        self._asked: dict[str, str] = {}
        self._spent: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self.slices: list[Slice] | None = []
        self.count = 0
        self.shares = Bins(total, bins)
        self.yields = Bins(total, bins)
        self.interruptions: Counter[tuple[str, str]] = Counter()
        self.gave_way = Distribution()
        self.given_up: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Grant():
                self._grant(event)
            case Yield():
                self._yield(event)
            case Step():
                self._step(event)
            case _:
                pass

    def held(self, at: int) -> tuple[int, ...]:
        """Nanoseconds that each lane had the device until now."""
        held = Counter(self._held)
        if self._running is not None:
            held[lane_of(self._running)] += at - self._running.at
        return tuple(held[lane] for lane in LANES)

    def _grant(self, grant: Grant) -> None:
        self._running, self._told = grant, None
        who = self._asked.pop(grant.step, None)
        if who is not None:
            self.interruptions[who, lane_of(grant)] += 1

    def _yield(self, told: Yield) -> None:
        if self._running is None or self._running.grant != told.grant:
            return
        lane = lane_of(self._running)
        self._told = told.at
        self.yields.add(lane, told.at, 1)
        if told.to is None:
            self.interruptions[lane, CANCELLED] += 1
        else:
            self._asked[told.to] = lane

    def _step(self, step: Step) -> None:
        grant = self._running
        if grant is not None and grant.grant == step.grant:
            self._running = None
            self._ran(grant, step)
        if step.outcome == "suspended":
            return
        self._asked.pop(step.step, None)
        spent = self._spent.pop(step.step, 0)
        if step.outcome in GIVEN_UP:
            self.given_up[step.outcome] += spent

    def _ran(self, grant: Grant, step: Step) -> None:
        lane = lane_of(grant)
        self.count += 1
        self._held[lane] += step.at - grant.at
        self.shares.add_span(lane, grant.at, step.at)
        if step.measured is not None:
            self._spent[step.step] += step.measured.device_ns
        if self._told is not None:
            self.gave_way.add(step.at - self._told)
        if self.slices is not None:
            self.slices.append(_slice(lane, grant, step, self._told is not None))
            if len(self.slices) > self._most:
                self.slices = None


def lane_of(grant: Grant) -> str:
    """The lane of a grant: its class, but for what nobody asked for."""
    return grant.work_class if grant.requests else OTHER


def _slice(lane: str, grant: Grant, step: Step, told: bool) -> Slice:
    return Slice(
        lane=lane,
        at=grant.at,
        ns=step.at - grant.at,
        kind=grant.kind,
        step=grant.step,
        requests=grant.requests,
        outcome=step.outcome,
        resumed=grant.resumed,
        told=told,
        waited_ns=grant.waited_ns,
        charge=grant.charge,
    )
