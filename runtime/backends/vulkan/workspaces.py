"""The workspaces of steps, and the pool of regions that they take from.

Regions of steps that ended are kept for later ones of their class, which then record nothing. All regions together,
those in use and the idle ones, stay within a limit as far as those in use allow: the idle ones that were used longest
ago go first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from ....actors.errors import BackendFault, BudgetExceeded
from .device import Device
from .regions import Counts, Region
from .shapes import Layouts, RegionClass


@attrs.define(eq=False)
class RegionPool:
    """The regions of one device; ``limit`` bounds their bytes."""

    limit: int
    counts: Counts = attrs.field(factory=Counts)
    _idle: list[Region] = attrs.field(factory=list, init=False)
    _used: list[Region] = attrs.field(factory=list, init=False)

    @property
    def bytes(self) -> int:
        """Bytes of all regions, idle ones included."""
        return sum(region.bytes for region in (*self._idle, *self._used))

    @property
    def idle_bytes(self) -> int:
        return sum(region.bytes for region in self._idle)

    def take(self, device: Device, layouts: Layouts, form: RegionClass) -> Region:
        """A region of this class: the idle one that was used last, or a new one."""
        for region in reversed(self._idle):
            if region.layouts is layouts and region.form == form:
                self._idle.remove(region)
                self._used.append(region)
                return region
        self._make_room(layouts.region_bytes(form))
        region = self._allocate(device, layouts, form)
        self.counts.regions += 1
        self._used.append(region)
        return region

    def _allocate(self, device: Device, layouts: Layouts, form: RegionClass) -> Region:
        """A new region; the idle ones give way to it."""
        try:
            return Region.allocate(device, layouts, form, self.counts)
        except BudgetExceeded:
            if not self._idle:
                raise
        self.forget_idle()
        return Region.allocate(device, layouts, form, self.counts)

    def give(self, region: Region) -> None:
        """Keep a region for later, unless it was forgotten meanwhile."""
        if region in self._used:
            self._used.remove(region)
            self._idle.append(region)
            self._make_room(0)

    def forget(self, layouts: Layouts | None = None) -> None:
        """Free every region of a model, or of all: steps that still have one can't go on."""
        for regions in (self._idle, self._used):
            for region in [each for each in regions if layouts is None or each.layouts is layouts]:
                regions.remove(region)
                region.free()

    def forget_idle(self) -> None:
        """Free every region that no step has."""
        while self._idle:
            self._idle.pop().free()

    def _make_room(self, size: int) -> None:
        while self._idle and self.bytes + size > self.limit:
            self._idle.pop(0).free()


class StepMemory:
    """The workspace of one step: its regions, which are idle between the step's parts."""

    def __init__(self, charge: int, pool: RegionPool) -> None:
        self.charge = charge
        self._pool = pool
        self._held: list[Region] = []
        self._busy: list[Region] = []
        self._most = 0
        self._open = True

    @contextmanager
    def region(self, device: Device, layouts: Layouts, form: RegionClass) -> Iterator[Region]:
        """A region for one part of the step.

        Raises:
            BackendFault: the workspace was closed.
            BudgetExceeded: the step was charged for less; carries the bytes asked for and those left.
        """
        region = self._take(device, layouts, form)
        self._busy.append(region)
        try:
            yield region
        finally:
            self._busy.remove(region)
            if not self._open:
                self._give(region)

    def _take(self, device: Device, layouts: Layouts, form: RegionClass) -> Region:
        if not self._open:
            raise BackendFault("workspace is closed: a step went on after its end")
        for region in self._held:
            if region.layouts is layouts and region.form == form and region not in self._busy:
                return region
        size = layouts.region_bytes(form)
        left = self.charge - sum(region.bytes for region in self._busy)
        if size > left:
            raise BudgetExceeded("step workspace", size, max(0, left), "charge the step for its real shape")
        for region in [each for each in self._held if each not in self._busy]:
            self._give(region)
        self._held.append(self._pool.take(device, layouts, form))
        self._most = max(self._most, sum(region.bytes for region in self._held))
        return self._held[-1]

    def _give(self, region: Region) -> None:
        self._held.remove(region)
        self._pool.give(region)

    def peak(self) -> int:
        """Most bytes of regions held at once so far."""
        return self._most

    def close(self) -> None:
        """Give the regions back, those of suspended parts when these end; closing again does nothing."""
        self._open = False
        for region in [each for each in self._held if each not in self._busy]:
            self._give(region)
