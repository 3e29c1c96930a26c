"""Transient memory of steps: one region per step, handed out by a bump allocator, so the peak is exact.

Regions go back to a pool when a step ends, which saves the operating system from handing out and clearing the same
pages for every step. Idle regions never add up to more than the pool's limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ....actors.errors import BackendFault, BudgetExceeded

ALIGNMENT = 64
SLACK = 16 << 10


def aligned(size: int) -> int:
    """``size`` bytes rounded up to the alignment of every array."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def aligned_empty(shape: Sequence[int], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """An uninitialized array at an aligned address; it allocates its bytes plus ``ALIGNMENT``.

    Vector kernels may split a sum at other places for other alignments; equal alignment keeps their sums equal.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    origin = -raw.ctypes.data % ALIGNMENT
    return raw[origin : origin + size].view(dtype).reshape(shape)


class RegionPool:
    """Regions of steps that ended, kept for the next ones up to ``limit`` bytes in all."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._idle: list[NDArray[np.uint8]] = []

    @property
    def idle_bytes(self) -> int:
        return sum(region.nbytes for region in self._idle)

    def take(self, size: int) -> NDArray[np.uint8]:
        """A region of ``size`` bytes: an idle one that is at most ``SLACK`` larger, or a new one."""
        fitting = [at for at, region in enumerate(self._idle) if 0 <= region.nbytes - size <= SLACK]
        return self._idle.pop(fitting[-1]) if fitting else np.empty(size, np.uint8)

    def give(self, region: NDArray[np.uint8]) -> None:
        """Keep a region; the longest idle ones are freed to stay within the limit."""
        self._idle.append(region)
        while self.idle_bytes > self.limit:
            self._idle.pop(0)


class ScratchWorkspace:
    """The arrays of one step, taken from a region of ``charge`` bytes, aligned, in stack order."""

    def __init__(self, charge: int, pool: RegionPool) -> None:
        self.charge = charge
        self._pool = pool
        self._region: NDArray[np.uint8] | None = pool.take(charge)
        self._origin = -self._region.ctypes.data % ALIGNMENT
        self._used = 0
        self._most = 0

    def take(self, shape: Sequence[int], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """An uninitialized array, valid until its mark is released.

        Raises:
            BudgetExceeded: the step's charge is used up; carries the bytes asked for and those left.
        """
        if self._region is None:
            raise BackendFault("workspace is closed: a step went on after its end")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        end = self._used + aligned(size)
        left = self.charge - ALIGNMENT - self._used
        if end > self.charge - ALIGNMENT:
            raise BudgetExceeded("step workspace", aligned(size), max(0, left), "charge the step for its real shape")
        start = self._origin + self._used
        self._used = end
        self._most = max(self._most, end)
        return self._region[start : start + size].view(dtype).reshape(shape)

    def mark(self) -> int:
        """The current height of the stack, for :meth:`release`."""
        return self._used

    def release(self, mark: int) -> None:
        """Give back everything taken since ``mark``."""
        self._used = mark

    def peak(self) -> int:
        """Most bytes in use at once so far, the alignment of the region included."""
        return self._most + ALIGNMENT if self._most else 0

    def close(self) -> None:
        """Give the region back; closing again does nothing."""
        if self._region is not None:
            self._pool.give(self._region)
            self._region = None
