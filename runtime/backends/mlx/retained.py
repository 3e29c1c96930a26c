"""Copies of KV state: between slots, into retained storage and back, and to and from files.

A copy must be one: a view of a buffer, even one that MLX calls contiguous, makes the next write to that buffer copy all
of it. So every copy is a write into memory of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import attrs
import mlx.core as mx
import numpy as np

from ....actors.work import PrefixFile
from ..contract import Segment
from ..positions import check_kept
from ..prefix_file import Piece, read_prefix
from ..prefix_header import Geometry
from .caches import LayerCache, Slot, write

COPY_BYTES = 16 << 20


@attrs.frozen(eq=False)
class Blob:
    """A retained copy of the first ``tokens`` positions: each layer's ``(1, kv_heads, tokens, head_dim)`` twice."""

    geometry: Geometry
    tokens: int
    layers: tuple[tuple[mx.array, mx.array], ...]

    def check(self, geometry: Geometry, tokens: int) -> None:
        """Refuse a restore into a model of another geometry, or of more than was kept."""
        check_kept(self.geometry, self.tokens, geometry, tokens)

    def pieces(self, tokens: int) -> Iterator[Piece]:
        """The first positions as contiguous arrays in file order: layer by layer, keys before values."""
        for layer in self.layers:
            for part in layer:
                yield _on_host(mx.contiguous(part[0, :, :tokens]))


def _on_host(array: mx.array) -> Piece:
    # NumPy has no bfloat16; its bytes are all that a file wants.
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)


def save_slot(slot: Slot, geometry: Geometry, tokens: int) -> Generator[Segment, None, Blob]:
    """Copy the first positions of a slot; a segment ends after about 16 MiB."""
    slot.check_filled(tokens)
    layers = []
    pauses = _pauses(slot, tokens)
    for number, cache in enumerate(slot.caches):
        if number in pauses:
            yield Segment()
        layers.append((_copy_of(cache.keys, tokens), _copy_of(cache.values, tokens)))
        mx.eval(layers[-1])
    return Blob(geometry, tokens, tuple(layers))


def restore_slot(blob: Blob, slot: Slot, tokens: int) -> Generator[Segment, None, None]:
    """Copy the first positions of a retained copy into a slot, whose old content is forgotten."""
    slot.begin(0, tokens)
    pauses = _pauses(slot, tokens)
    for number, (cache, (keys, values)) in enumerate(zip(slot.caches, blob.layers, strict=True)):
        if number in pauses:
            yield Segment()
        _fill(cache, keys[:, :, :tokens], values[:, :, :tokens])
    slot.filled = tokens


def copy_slot(source: Slot, targets: Sequence[Slot], tokens: int) -> Generator[Segment, None, None]:
    """Copy the first positions of a slot into others, whose old content is forgotten."""
    source.check_filled(tokens)
    pauses = _pauses(source, tokens)
    for target in targets:
        target.begin(0, tokens)
        for number, (origin, cache) in enumerate(zip(source.caches, target.caches, strict=True)):
            if number in pauses:
                yield Segment()
            _fill(cache, origin.keys[:, :, :tokens], origin.values[:, :, :tokens])
        target.filled = tokens


def read_blob(file: PrefixFile, backend: str, geometry: Geometry) -> Generator[Segment, None, Blob]:
    """Read a file's keys and values. Raises ``ArtifactInvalid`` like ``read_prefix``."""
    tokens, parts = len(file.tokens), list[mx.array]()
    yield from read_prefix(file, backend, geometry, _taking(geometry, tokens, parts))
    return Blob(geometry, tokens, tuple(zip(parts[::2], parts[1::2], strict=True)))


def _taking(geometry: Geometry, tokens: int, parts: list[mx.array]) -> Iterator[Piece]:
    """Host memory to read each part into, always the same; what was read goes to ``parts``."""
    bits = geometry.dtype == "bfloat16"
    host = np.empty((1, geometry.kv_heads, tokens, geometry.head_dim), np.uint16 if bits else geometry.dtype)
    for _ in range(2 * geometry.layers):
        yield host
        array = mx.array(host)
        parts.append(array.view(mx.bfloat16) if bits else array)
        mx.eval(parts[-1])


def _fill(cache: LayerCache, keys: mx.array, values: mx.array) -> None:
    """Write the first positions of a layer in place."""
    cache.keys, cache.values = write(cache.keys, 0, keys), write(cache.values, 0, values)
    mx.eval(cache.keys, cache.values)


def _copy_of(buffer: mx.array, tokens: int) -> mx.array:
    return write(mx.zeros((*buffer.shape[:2], tokens, buffer.shape[3]), buffer.dtype), 0, buffer[:, :, :tokens])


def _pauses(slot: Slot, tokens: int) -> range:
    """The layers in front of which a segment of copying ends."""
    layer = slot.caches[0].nbytes * tokens // slot.capacity
    return range(step := max(1, COPY_BYTES // max(1, layer)), len(slot.caches), step)
