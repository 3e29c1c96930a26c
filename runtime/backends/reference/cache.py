"""KV memory: slots of fixed capacity, and what moves between them and retained copies.

A slot holds keys and values of every layer as ``(kv_heads, capacity, head_dim)``: the first ``n`` positions are a
view that both attention products take as it is, so a step copies nothing but its own positions.
"""

from __future__ import annotations

from collections.abc import Generator

import attrs

from ...models.architecture import DecoderConfig
from ..blobs import Array, Blob
from ..contract import Segment
from ..positions import check_filled, check_room
from ..prefix_header import Geometry
from .workspace import ALIGNMENT, aligned_empty

COPY_BYTES = 16 << 20


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
