"""Regions: the transient memory of steps, by class, with the recordings that run in it.

A step takes one region for as long as it lives, suspensions included.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from typing import NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import BackendFault
from .arena import Arena
from .device import Device
from .functions import Handle
from .memory import Bound, Buffer
from .programs import Program
from .recording import Commands
from .set_cache import SetCache
from .shapes import Layouts, RegionClass
from .uploading import clear, mapped

PROGRAMS = 16
"""Programs that a region keeps: those used last."""

HOST = "host"


class Window(NamedTuple):
    """``bytes`` of an array of a region from byte ``first`` on, to its end by default."""

    array: str
    first: int = 0
    bytes: int | None = None


@attrs.define
class Counts:
    """Regions allocated and programs begun so far."""

    regions: int = 0
    programs: int = 0


@attrs.define(eq=False)
class Region:
    """The arrays of one step and what was recorded over them; ``host`` begins with the step's parameters."""

    layouts: Layouts
    form: RegionClass
    arena: Arena
    host: Buffer
    sets: SetCache
    counts: Counts
    _freed: bool = attrs.field(default=False, init=False)
    _programs: OrderedDict[Hashable, Program] = attrs.field(factory=OrderedDict, init=False)

    @classmethod
    def allocate(cls, device: Device, layouts: Layouts, form: RegionClass, counts: Counts) -> Region:
        """Raises ``BudgetExceeded`` when the device has no room for it; nothing is left behind then."""
        arena = Arena.allocate(device, layouts.packing(form), "a step")
        try:
            host = device.allocate(layouts.host_bytes(form), "what a step tells the host", host=True)
        except BaseException:
            arena.free()
            raise
        region = cls(layouts, form, arena, host, SetCache(device.sets(), 1), counts)
        try:
            # Columns that pad a row are read and never written.
            clear(device, host, list(arena.buffers))
        except BaseException:
            region.free()
            raise
        return region

    @property
    def bytes(self) -> int:
        """Bytes of its allocations."""
        return sum(buffer.bytes for buffer in (*self.arena.buffers, self.host))

    def at(self, window: Window) -> Bound:
        """Where a window is."""
        whole = self.host.bound() if window.array == HOST else self.arena.at(window.array)
        size = whole.bytes - window.first if window.bytes is None else window.bytes
        return Bound(whole.buffer, whole.offset + window.first, size)

    def set_of(self, kernel: str, windows: tuple[Window, ...]) -> Handle:
        """Set 1 of a kernel over windows of this region."""
        return self.sets.get(kernel, windows, lambda: [self.at(window) for window in windows])

    def program(self, key: Hashable, record: Callable[[], Generator[Commands, None, None]]) -> Program:
        """The program of this key, which ``record`` makes when there is none yet."""
        self.check()
        known = self._programs.get(key)
        if known is not None and not known.broken:
            self._programs.move_to_end(key)
            return known
        if known is not None:
            known.free()
        self._programs[key] = program = Program(record())
        self._programs.move_to_end(key)
        self.counts.programs += 1
        while len(self._programs) > PROGRAMS:
            self._programs.popitem(last=False)[1].free()
        return program

    def parameters(self) -> NDArray[np.uint8]:
        """Where the host writes the parameters of a step."""
        return self._view()[: self.layouts.parameters(self.form).bytes]

    def back(self, at: int, count: int) -> NDArray[np.float32]:
        """``count`` floats that a step brought back, ``at`` bytes behind the parameters; valid until the next step."""
        start = self.back_at + at
        return self._view()[start : start + 4 * count].view(np.float32)

    @property
    def back_at(self) -> int:
        """Where in ``host`` the device writes."""
        return self.layouts.limits.aligned(self.layouts.parameters(self.form).bytes)

    def check(self) -> None:
        """Raise ``BackendFault`` when the memory was given back while a step still had it."""
        if self._freed:
            raise BackendFault("a step's memory is gone: its model was loaded anew or unloaded meanwhile")

    def _view(self) -> NDArray[np.uint8]:
        self.check()
        return mapped(self.host)

    def free(self) -> None:
        """Give everything back; doing it again does nothing."""
        self._freed = True
        for program in self._programs.values():
            program.free()
        self._programs.clear()
        self.sets.free()
        self.arena.free()
        self.host.free()
