"""Kernels on their own: arrays in, a few dispatches, arrays back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np
from coresident.runtime.backends.vulkan.device import Device
from coresident.runtime.backends.vulkan.dispatches import Dispatch
from coresident.runtime.backends.vulkan.kernels import load_kernels

from support.vulkan_life import device_info, functions

BYTES = 1 << 22
UNTOUCHED = 0x7FC0BEEF
"""A NaN that no arithmetic gives."""


@attrs.define(eq=False)
class Bench:
    """A device with one mapped buffer, in which every array of a run gets a place of its own."""

    device: Device
    memory: Any

    def run(self, dispatches: Dispatch | Sequence[Dispatch], *sets: Sequence[Any]) -> None:
        """Run dispatches, a barrier behind each, over arrays as descriptor sets; what they wrote is in the arrays then.

        An array that is bound twice has one place; a set that the kernels don't have is empty.
        """
        several = [dispatches] if isinstance(dispatches, Dispatch) else list(dispatches)
        places: dict[int, int] = {}
        arrays = {id(array): array for bound in sets for array in bound}
        used = 0
        for key, array in arrays.items():
            places[key] = used
            self._view(used, array)[:] = array.reshape(-1).view(np.uint8)
            used += -(-array.nbytes // 256) * 256
        pool = self.device.sets()
        try:
            with self.device.record() as recording:
                for dispatch in several:
                    handles = [self._set(pool, dispatch.kernel, n, bound, places) for n, bound in enumerate(sets)]
                    recording.dispatch(dispatch, (*handles, *[None] * (3 - len(handles))))
                    recording.barrier()
                commands = recording.finish()
            self.device.run([commands])
            commands.free()
        finally:
            pool.free()
        for key, array in arrays.items():
            array.reshape(-1).view(np.uint8)[:] = self._view(places[key], array)

    def _view(self, start: int, array: Any) -> Any:
        return self.memory.view[start : start + array.nbytes]

    def _set(self, pool: Any, kernel: str, index: int, bound: Sequence[Any], places: dict[int, int]) -> Any:
        if not bound:
            return None
        return pool.make(kernel, index, [self.memory.bound(places[id(array)], array.nbytes) for array in bound])


@cache
def bench() -> Bench:
    """The best device here with every shipped kernel; skips where there is none."""
    device = Device.open(functions(), device_info(), kernels=load_kernels())
    return Bench(device, device.allocate(BYTES, "arrays of a test", host=True))


def floats(*shape: int) -> Any:
    """An array that a kernel is to fill."""
    return np.full(shape, UNTOUCHED, np.uint32).view(np.float32)


def untouched(array: Any) -> Any:
    """Where a kernel has left such an array alone."""
    return bits(array) == UNTOUCHED


def bits(array: Any) -> Any:
    """The array's float32 as integers, for comparisons to the bit."""
    return np.ascontiguousarray(array, np.float32).view(np.uint32)


def chain(weights: Any, x: Any) -> Any:
    """``x @ weights.T`` added up in float32 with the inputs ascending, each product rounded before it is added."""
    sums = np.zeros((len(x), len(weights)), np.float32)
    for k in range(x.shape[1]):
        sums += x[:, k, None] * weights[None, :, k]
    return sums
