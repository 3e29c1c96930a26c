"""What moves between slots on the device and retained copies in host memory, through the staging buffer.

A segment ends after about 16 MiB, or whenever the staging buffer was full.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from ...models.architecture import DecoderConfig
from ..blobs import BLOCK, Blob
from ..contract import Segment
from ..prefix_header import Geometry
from .device import Device
from .facts import LANES
from .memory import Buffer
from .slots import PARTS, Slot
from .uploading import Region, copy_now, mapped

COPY_BYTES = 16 << 20


@attrs.frozen
class Stretch:
    """Positions ``first`` to ``stop`` of one layer, whose keys lie at ``offset`` of the staging buffer."""

    layer: int
    first: int
    stop: int
    offset: int


@attrs.frozen(eq=False)
class Mover:
    """Moves positions of one model's slots."""

    device: Device
    staging: Buffer
    config: DecoderConfig

    def save(
        self, slot: Slot, geometry: Geometry, tokens: int, base: Blob | None = None, shared: int = 0
    ) -> Generator[Segment, None, Blob]:
        """Copy the first positions of a slot, those aside that ``base`` has."""
        slot.check_filled(tokens)
        blob = Blob.empty(geometry, tokens, base.head(shared) if base is not None else ())
        for number, batch in enumerate(self._batches(shared, tokens)):
            if number:
                yield Segment()
            self._copy(slot, batch, to_device=False)
            self._each(blob, batch, _take)
        return blob

    def restore(self, blob: Blob, slot: Slot, tokens: int) -> Generator[Segment, None, None]:
        """Copy the first positions of a retained copy into a slot, whose old content is forgotten."""
        slot.filled = 0
        slot.check(0, tokens)
        for number, batch in enumerate(self._batches(0, tokens)):
            if number:
                yield Segment()
            self._each(blob, batch, _give)
            self._copy(slot, batch, to_device=True)
        slot.filled = tokens

    def copy(self, source: Slot, target: Slot, tokens: int) -> Generator[Segment, None, None]:
        """Copy the first positions of a slot into another one, whose old content is forgotten."""
        source.check_filled(tokens)
        target.filled = 0
        target.check(0, tokens)
        step = max(1, COPY_BYTES // (2 * self._token * tokens))
        for first in range(0, self.config.layers, step):
            if first:
                yield Segment()
            layers = range(first, min(first + step, self.config.layers))
            copy_now(self.device, [move for layer in layers for move in self._across(source, target, layer, tokens)])
        target.filled = tokens

    @property
    def _token(self) -> int:
        """Bytes of the keys of one position in one layer; its values take as much."""
        return 4 * self.config.kv_width

    def _batches(self, first: int, tokens: int) -> Iterator[list[Stretch]]:
        """Every layer's positions, as many at a time as one copy may take."""
        room = min(COPY_BYTES, self.staging.size)
        most = self.staging.size // (2 * self._token)
        step = max(1, most // BLOCK * BLOCK or most)
        batch: list[Stretch] = []
        used = 0
        for layer in range(self.config.layers):
            for start in range(first, tokens, step):
                stop = min(start + step, tokens)
                size = 2 * self._token * (stop - start)
                if batch and used + size > room:
                    yield batch
                    batch, used = [], 0
                batch.append(Stretch(layer, start, stop, used))
                used += size
        if batch:
            yield batch

    def _copy(self, slot: Slot, batch: list[Stretch], to_device: bool) -> None:
        """Move stretches between the staging buffer and a slot."""
        copies = []
        for one in batch:
            for part in PARTS:
                place, regions = slot.at(one.layer, part).buffer, self._regions(slot, one, part)
                if to_device:
                    copies.append((self.staging, place, regions))
                else:
                    copies.append((place, self.staging, [(there, here, size) for here, there, size in regions]))
        copy_now(self.device, copies)

    def _regions(self, slot: Slot, one: Stretch, part: str) -> list[Region]:
        """Where a stretch is in the staging buffer, and where in the slot."""
        count, start = one.stop - one.first, slot.at(one.layer, part).offset
        keys = part == "keys"
        runs = self.config.kv_width // LANES if keys else self.config.kv_heads
        item = 4 * LANES if keys else 4 * self.config.head_dim
        here = one.offset + (0 if keys else self._token * count)
        size = count * item
        return [(here + run * size, start + (run * slot.capacity + one.first) * item, size) for run in range(runs)]

    def _across(
        self, source: Slot, target: Slot, layer: int, tokens: int
    ) -> Iterator[tuple[Buffer, Buffer, list[Region]]]:
        one = Stretch(layer, 0, tokens, 0)
        for part in PARTS:
            here, there = self._regions(source, one, part), self._regions(target, one, part)
            regions = [(start, to, size) for (_, start, size), (_, to, _) in zip(here, there, strict=True)]
            yield source.at(layer, part).buffer, target.at(layer, part).buffer, regions

    def _each(self, blob: Blob, batch: list[Stretch], move: Callable[..., None]) -> None:
        """Move between the staging buffer and the blocks of a retained copy."""
        config = self.config
        for one in batch:
            count = one.stop - one.first
            keys, values = self._staged(one).reshape(2, -1)
            by_head = keys.reshape(config.kv_heads, config.head_dim // LANES, count, LANES).transpose(0, 2, 1, 3)
            for positions, block in blob.stretches(one.stop, one.first // BLOCK * BLOCK):
                low, high = max(positions.start, one.first), positions.stop
                held = block[one.layer, :, :, low - positions.start :]
                there = slice(low - one.first, high - one.first)
                shape = (config.kv_heads, high - low, config.head_dim // LANES, LANES)
                move(by_head[:, there], held[0].reshape(shape))
                move(values.reshape(config.kv_heads, count, config.head_dim)[:, there], held[1])

    def _staged(self, one: Stretch) -> NDArray[np.float32]:
        """A stretch in the staging buffer: its keys, then its values."""
        return mapped(self.staging)[one.offset : one.offset + 2 * self._token * (one.stop - one.first)].view(np.float32)


def _take(staged: NDArray[np.float32], kept: NDArray[np.float32]) -> None:
    kept[:] = staged


def _give(staged: NDArray[np.float32], kept: NDArray[np.float32]) -> None:
    staged[:] = kept
