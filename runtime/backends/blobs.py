"""Compact retained copies of KV in host memory, which share the blocks of a common head.

Where a backend's own slots lie is its own affair; what it retains has this one form, from which prefix files are
written, and into which they are read.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.errors import InvalidRequest
from .positions import check_kept
from .prefix_header import Geometry

Array = NDArray[np.float32]
BLOCK = 64


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
