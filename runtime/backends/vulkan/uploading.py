"""From the host to the device and back through one staging buffer, a bounded piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import BackendFault
from .device import Device
from .memory import Bound, Buffer

Bytes: TypeAlias = NDArray[np.uint8]
Region: TypeAlias = tuple[int, int, int]
"""Offset in the staging buffer, offset in the other one, bytes."""

Copies: TypeAlias = tuple[Buffer, Buffer, list[Region]]
"""Source, target, and regions of (offset in the source, in the target, bytes)."""


def copy_now(device: Device, copies: list[Copies]) -> None:
    """Run copies, and wait for them."""
    with device.record() as recording:
        for source, target, regions in copies:
            recording.copy(source, target, regions)
        commands = recording.finish()
    try:
        device.run([commands])
    finally:
        commands.free()


@attrs.define(eq=False)
class Uploader:
    """Collects what is to be written in the staging buffer, and copies it to its place whenever that is full."""

    device: Device
    staging: Buffer
    _used: int = attrs.field(default=0, init=False)
    _copies: dict[int, Copies] = attrs.field(factory=dict, init=False)

    def put(self, target: Bound, columns: int, first: int, data: NDArray[Any]) -> Iterator[None]:
        """Write ``data``, contiguous ``(blocks, some columns, item bytes)``, behind ``first`` columns of each block.

        The target has ``columns`` in a block. Yields after each copy.
        """
        blocks, some, item = data.shape
        step = max(1, self.staging.size // (some * item))
        for block in range(0, blocks, step):
            part = data[block : block + step]
            if self._used + part.nbytes > self.staging.size:
                self.flush()
                yield
            self._add(target, columns, first, block, part)

    def _add(self, target: Bound, columns: int, first: int, block: int, part: Bytes) -> None:
        blocks, some, item = part.shape
        mapped(self.staging)[self._used : self._used + part.nbytes] = part.reshape(-1)
        _, _, regions = self._copies.setdefault(id(target.buffer), (self.staging, target.buffer, []))
        start = target.offset + (block * columns + first) * item
        if some == columns:
            regions.append((self._used, start, part.nbytes))
        else:
            size = some * item
            regions += [(self._used + n * size, start + n * columns * item, size) for n in range(blocks)]
        self._used += -(-part.nbytes // 4) * 4

    def flush(self) -> None:
        """Copy what has been collected, and wait for it."""
        if self._copies:
            copy_now(self.device, list(self._copies.values()))
        self._copies.clear()
        self._used = 0


def clear(device: Device, staging: Buffer, buffers: list[Buffer]) -> None:
    """Fill buffers with zeros."""
    mapped(staging)[:] = 0
    for buffer in buffers:
        step = staging.size
        regions = [(0, at, min(step, buffer.size - at)) for at in range(0, buffer.size, step)]
        copy_now(device, [(staging, buffer, regions)])


def mapped(buffer: Buffer) -> Bytes:
    """The memory of a buffer that the host sees."""
    if buffer.view is None:
        raise BackendFault(f"a buffer of {buffer.size} bytes is not mapped, or was freed")
    return buffer.view
