"""KV memory: slots of fixed capacity, and compact retained copies.

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
from ..prefix_header import Geometry
from .workspace import ALIGNMENT, aligned_empty

Array = NDArray[np.float32]
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
        if tokens < 1 or start < 0:
            raise InvalidRequest(f"{tokens} tokens at position {start}: at least one token is needed", tokens=tokens)
        if start + tokens > self.capacity:
            raise InvalidRequest(
                f"{tokens} tokens at position {start} end at {start + tokens}, the slot holds {self.capacity}: admit a "
                "larger context or send less",
                start=start,
                tokens=tokens,
                capacity=self.capacity,
            )
        self.check_filled(start)

    def check_filled(self, tokens: int) -> None:
        """Refuse to build on positions that were not evaluated."""
        if tokens > self.filled:
            raise InvalidRequest(
                f"the first {tokens} positions of the slot were asked for, {self.filled} are evaluated: "
                "prefill them first",
                tokens=tokens,
                filled=self.filled,
            )


def slot_buffer_bytes(config: DecoderConfig, capacity: int) -> int:
    """Bytes of one allocation of a slot; there are two for each layer."""
    return 4 * config.kv_heads * capacity * config.head_dim + ALIGNMENT


@attrs.frozen(eq=False)
class Blob:
    """A retained copy of the first ``tokens`` positions: ``data`` is ``(layers, 2, kv_heads, tokens, head_dim)``."""

    geometry: Geometry
    tokens: int
    data: Array

    @classmethod
    def empty(cls, geometry: Geometry, tokens: int) -> Blob:
        """Storage whose data is still to be written."""
        shape = (geometry.layers, 2, geometry.kv_heads, tokens, geometry.head_dim)
        return cls(geometry, tokens, np.empty(shape, np.float32))

    def pieces(self, tokens: int) -> Iterator[Array]:
        """The first positions as contiguous views: layer by layer, keys before values, head by head."""
        for layer in self.data:
            for part in layer:
                for head in part:
                    yield head[:tokens]

    def check(self, geometry: Geometry, tokens: int) -> None:
        """Refuse a restore into a model of another geometry, or of more than was kept.

        Raises:
            InvalidRequest: naming the first field that differs.
        """
        for field in attrs.fields_dict(Geometry):
            kept, wanted = getattr(self.geometry, field), getattr(geometry, field)
            if kept != wanted:
                raise InvalidRequest(
                    f"retained KV has {field} {kept!r}, the model has {wanted!r}: drop it and prefill again",
                    field=field,
                    kept=kept,
                    wanted=wanted,
                )
        if not 0 < tokens <= self.tokens:
            raise InvalidRequest(
                f"{tokens} positions were asked of retained KV that holds {self.tokens}: restore at most those",
                tokens=tokens,
                kept=self.tokens,
            )


def _layers_per_segment(slot: Slot, tokens: int) -> int:
    heads, _, head_dim = slot.keys[0].shape
    layer: int = 2 * 4 * heads * head_dim * max(1, tokens)
    return max(1, COPY_BYTES // layer)


def save_slot(slot: Slot, geometry: Geometry, tokens: int) -> Generator[Segment, None, Blob]:
    """Copy the first positions of a slot; a segment ends after about 16 MiB."""
    slot.check_filled(tokens)
    blob = Blob.empty(geometry, tokens)
    step = _layers_per_segment(slot, tokens)
    for layer, (keys, values) in enumerate(zip(slot.keys, slot.values, strict=True)):
        if layer and layer % step == 0:
            yield Segment()
        blob.data[layer, 0] = keys[:, :tokens]
        blob.data[layer, 1] = values[:, :tokens]
    return blob


def restore_slot(blob: Blob, slot: Slot, tokens: int) -> Generator[Segment, None, None]:
    """Copy the first positions of a retained copy into a slot, whose old content is forgotten."""
    slot.filled = 0
    slot.check(0, tokens)
    step = _layers_per_segment(slot, tokens)
    for layer, (keys, values) in enumerate(zip(slot.keys, slot.values, strict=True)):
        if layer and layer % step == 0:
            yield Segment()
        keys[:, :tokens] = blob.data[layer, 0, :, :tokens]
        values[:, :tokens] = blob.data[layer, 1, :, :tokens]
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
