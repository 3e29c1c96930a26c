"""KV memory: slots of fixed capacity, and compact retained copies that share the blocks of a common head.

A slot holds keys and values of every layer as ``(kv_heads, capacity, head_dim)``: the first ``n`` positions are a
view that both attention products take as it is, so a step copies nothing but its own positions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import InvalidRequest
from ...models.architecture import DecoderConfig
from ..contract import Segment
from ..positions import check_filled, check_kept, check_room
from ..prefix_header import Geometry
from .workspace import ALIGNMENT, aligned_empty

Array = NDArray[np.float32]
COPY_BYTES = 16 << 20
BLOCK = 64


@attrs.define(eq=False)
class Slot:
    """``filled`` counts the positions from 0 whose keys and values are whole in every layer."""

    capacity: int
    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    filled: int = 0

    @classmethod
    def empty(cls, config: DecoderConfig, capacity: int) -> Slot:
        shape = (config.kv_heads, capacity, config.head_dim)
        keys = tuple(aligned_empty(shape) for _ in range(config.layers))
        values = tuple(aligned_empty(shape) for _ in range(config.layers))
        return cls(capacity, keys, values)

    def check(self, start: int, tokens: int) -> None:
        """Refuse positions beyond the capacity, or after a gap."""
        check_room(self.capacity, self.filled, start, tokens)

    def check_filled(self, tokens: int) -> None:
        """Refuse to build on positions that were not evaluated."""
        check_filled(self.filled, tokens)


def slot_buffer_bytes(config: DecoderConfig, capacity: int) -> int:
    """Bytes of one allocation of a slot; there are two for each layer."""
    return 4 * config.kv_heads * capacity * config.head_dim + ALIGNMENT


@attrs.frozen(eq=False)
class Blob:
    """A retained copy of the first ``tokens`` positions, in blocks of ``BLOCK``, which other copies may hold too.

    A block is ``(layers, 2, kv_heads, BLOCK, head_dim)``; the last one has only the positions that there are.
    """

    geometry: Geometry
    tokens: int
    blocks: tuple[Array, ...]

    @classmethod
    def empty(cls, geometry: Geometry, tokens: int, head: tuple[Array, ...] = ()) -> Blob:
        """Storage behind the blocks ``head`` of another copy, whose data is still to be written."""
        own = (min(BLOCK, tokens - start) for start in range(len(head) * BLOCK, tokens, BLOCK))
        shape = (geometry.layers, 2, geometry.kv_heads)
        return cls(geometry, tokens, head + tuple(np.empty((*shape, n, geometry.head_dim), np.float32) for n in own))

    def head(self, tokens: int) -> tuple[Array, ...]:
        """The blocks of the first ``tokens`` positions, for another copy to hold.

        Raises:
            InvalidRequest: those are not whole blocks, or not there.
        """
        if tokens % BLOCK or not 0 <= tokens <= self.tokens:
            raise InvalidRequest(
                f"{tokens} positions of retained KV that holds {self.tokens} are to be shared: give whole blocks of "
                f"{BLOCK}",
                tokens=tokens,
                kept=self.tokens,
            )
        return self.blocks[: tokens // BLOCK]

    def stretches(self, tokens: int, start: int = 0) -> Iterator[tuple[slice, Array]]:
        """Which positions, of the first ``tokens`` from block boundary ``start`` on, are where."""
        for first in range(start, tokens, BLOCK):
            stop = min(first + BLOCK, tokens)
            yield slice(first, stop), self.blocks[first // BLOCK][:, :, :, : stop - first]

    def pieces(self, tokens: int) -> Iterator[Array]:
        """The first positions as contiguous views: layer by layer, keys before values, head by head."""
        for layer in range(self.geometry.layers):
            for part in range(2):
                for head in range(self.geometry.kv_heads):
                    for _, block in self.stretches(tokens):
                        yield block[layer, part, head]

    def check(self, geometry: Geometry, tokens: int) -> None:
        """Refuse a restore into a model of another geometry, or of more than was kept."""
        check_kept(self.geometry, self.tokens, geometry, tokens)


def _layers_per_segment(slot: Slot, tokens: int) -> int:
    heads, _, head_dim = slot.keys[0].shape
    layer: int = 2 * 4 * heads * head_dim * max(1, tokens)
    return max(1, COPY_BYTES // layer)


def save_slot(
    slot: Slot, geometry: Geometry, tokens: int, base: Blob | None = None, shared: int = 0
) -> Generator[Segment, None, Blob]:
    """Copy the first positions of a slot, those aside that ``base`` has; a segment ends after about 16 MiB."""
    slot.check_filled(tokens)
    blob = Blob.empty(geometry, tokens, base.head(shared) if base is not None else ())
    step = _layers_per_segment(slot, tokens - shared)
    for layer, (keys, values) in enumerate(zip(slot.keys, slot.values, strict=True)):
        if layer and layer % step == 0:
            yield Segment()
        for positions, block in blob.stretches(tokens, shared):
            block[layer, 0] = keys[:, positions]
            block[layer, 1] = values[:, positions]
    return blob


def restore_slot(blob: Blob, slot: Slot, tokens: int) -> Generator[Segment, None, None]:
    """Copy the first positions of a retained copy into a slot, whose old content is forgotten."""
    slot.filled = 0
    slot.check(0, tokens)
    step = _layers_per_segment(slot, tokens)
    for layer, (keys, values) in enumerate(zip(slot.keys, slot.values, strict=True)):
        if layer and layer % step == 0:
            yield Segment()
        for positions, block in blob.stretches(tokens):
            keys[:, positions] = block[layer, 0]
            values[:, positions] = block[layer, 1]
    slot.filled = tokens


def copy_slot(source: Slot, target: Slot, tokens: int) -> Generator[Segment, None, None]:
    """Copy the first positions of a slot into another one, whose old content is forgotten."""
    source.check_filled(tokens)
    target.filled = 0
    target.check(0, tokens)
    step = _layers_per_segment(source, tokens)
    for layer in range(len(source.keys)):
        if layer and layer % step == 0:
            yield Segment()
        target.keys[layer][:, :tokens] = source.keys[layer][:, :tokens]
        target.values[layer][:, :tokens] = source.values[layer][:, :tokens]
    target.filled = tokens
