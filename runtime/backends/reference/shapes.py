"""The sizes of a chunk's work, from its token count, its end and the config alone.

Everything that decides a product's shape is here, so results can't depend on timing or neighbours, and the workspace
charge of a step is the same arithmetic that its arrays are taken by.
"""

from __future__ import annotations

import math

import attrs

from ...models.architecture import DecoderConfig
from .workspace import ALIGNMENT, aligned

SCORE_ELEMENTS = 1 << 19
"""Attention scores of one piece (2 MiB of float32): stays near the caches, a few milliseconds of work."""

QUERY_ROWS = 256
ATOM_OPERATIONS = 1_000_000_000
"""Floating-point operations of one piece of a large product: about 10 ms on one core of 2020's machines."""

Shape = tuple[int, ...]


@attrs.frozen
class ChunkShape:
    """``tokens`` new positions of one sequence, the last of them at ``context - 1``."""

    config: DecoderConfig
    tokens: int
    context: int

    @property
    def start(self) -> int:
        return self.context - self.tokens

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.config.heads // self.config.kv_heads

    @property
    def qkv_width(self) -> int:
        return self.config.q_width + 2 * self.config.kv_width

    def query_rows(self) -> int:
        """Query positions in one piece of attention, about equal over the pieces."""
        most = min(self.tokens, QUERY_ROWS, max(1, SCORE_ELEMENTS // (self.group * self.context)))
        return -(-self.tokens // -(-self.tokens // most))

    def kv_heads(self) -> int:
        """KV heads in one piece of attention."""
        piece = self.group * self.query_rows() * self.context
        return min(self.config.kv_heads, max(1, SCORE_ELEMENTS // piece))

    def score_elements(self) -> int:
        """Room for the scores of any piece of a chunk that is not longer and does not end later than this one."""
        one_row = self.group * self.context
        return min(self.config.kv_heads * self.tokens * one_row, max(SCORE_ELEMENTS, one_row))

    def attention(self) -> dict[str, Shape]:
        """Arrays that live during attention, float32."""
        kv_heads, head_dim = self.config.kv_heads, self.config.head_dim
        return {
            "qkv": (self.tokens, self.qkv_width),
            "query": (kv_heads, self.tokens, self.group, head_dim),
            "most": (kv_heads, self.tokens, self.group, 1),
            "sums": (kv_heads, self.tokens, self.group, 1),
            "scores": (self.score_elements(),),
        }

    def mlp(self) -> dict[str, Shape]:
        """Arrays that live during the feed-forward part, float32."""
        return {"gate": (self.tokens, self.config.mlp), "up": (self.tokens, self.config.mlp)}

    def whole(self) -> dict[str, tuple[Shape, str]]:
        """Arrays that live as long as the chunk; ``arena`` holds attention's and the feed-forward's in turn."""
        arrays: dict[str, tuple[Shape, str]] = {
            "ids": ((self.tokens,), "i8"),
            "hidden": ((self.tokens, self.config.hidden), "f4"),
            "normed": ((self.tokens, self.config.hidden), "f4"),
            "squares": ((self.tokens, self.config.heads), "f4"),
            "rotation": ((self.tokens, 1, self.config.head_dim // 2), "c8"),
            "arena": ((max(total(self.attention()), total(self.mlp())),), "u1"),
        }
        if self.tokens > 1:
            rows = min(self.tokens, QUERY_ROWS)
            arrays["future"] = ((rows, rows), "?")
        return arrays

    def bytes(self) -> int:
        """Workspace of the chunk."""
        return sum(aligned(math.prod(shape) * ITEM[kind]) for shape, kind in self.whole().values())


ITEM = {"i8": 8, "f4": 4, "c8": 8, "u1": 1, "?": 1}


def total(arrays: dict[str, Shape]) -> int:
    """Bytes of float32 arrays laid out one after the other, each aligned."""
    return sum(aligned(math.prod(shape) * 4) for shape in arrays.values())


def with_region(size: int) -> int:
    """The charge for ``size`` bytes of arrays: the region's alignment comes on top."""
    return size + ALIGNMENT
