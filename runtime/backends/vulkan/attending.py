"""Dispatches of attention: rotation and the KV cache's writes, scores, softmax, and the weighted sum of values.

A unit is up to ``tile`` tokens of one slot at consecutive positions. Its query rows, one for each token and head of a
KV head's group, are ``token * group + head``, so that a kernel takes 4 or 8 of them at a time whatever the group is.
Keys of a slot's layer are ``[kv_head][head_dim / 4][capacity]`` vec4, values ``[kv_head][capacity][head_dim / 4]``.
"""

from __future__ import annotations

import attrs

from .dispatches import Dispatch, groups, quads, way, words
from .parameters import StepLayout

ABSENT = 0xFFFFFFFF
POSITIONS_PER_GROUP = {True: 128, False: 64}
DIMENSIONS_PER_GROUP = {True: 64, False: 128}


@attrs.frozen
class Attention:
    """Geometry of a layer's attention; ``*_at`` are places in its vectors, None where it has no such vector.

    ``interleaved`` says whether rotated pairs are neighbours ``(2i, 2i + 1)`` or halves ``(i, i + head_dim / 2)``.
    """

    heads: int
    kv_heads: int
    head_dim: int
    interleaved: bool
    eps: float
    bias_at: int | None = None
    q_norm_at: int | None = None
    k_norm_at: int | None = None

    @property
    def group(self) -> int:
        """Query heads of a KV head."""
        return self.heads // self.kv_heads

    def rows_at_once(self, tile: int) -> int:
        """How many query rows a kernel takes at a time: 4 where a tile has no more, else 8."""
        return 4 if tile * self.group <= 4 else 8

    def rows(self, tile: int) -> int:
        """Query rows of a KV head in memory."""
        once = self.rows_at_once(tile)
        return once * groups(tile * self.group, once)

    def query_floats(self, tokens: int, tile: int) -> int:
        """Floats of the scratch for rotated queries of ``tokens`` tokens: ``[tile][kv_head][row][head_dim]``."""
        return groups(tokens, tile) * self.kv_heads * self.rows(tile) * self.head_dim

    def score_floats(self, tile: int, context: int) -> int:
        """Floats of the scratch for one unit's scores: ``[kv_head][row][context]``."""
        return self.kv_heads * self.rows(tile) * context

    def sum_floats(self, tile: int) -> int:
        """Floats of the scratch for one unit's softmax sums, as 1 / sum: ``[kv_head][row]``."""
        return self.kv_heads * self.rows(tile)


def kv_bytes(kv_heads: int, head_dim: int, capacity: int) -> int:
    """Bytes of the keys of one layer of a slot; its values take as many."""
    return 4 * kv_heads * head_dim * capacity


def rope(
    attention: Attention,
    step: StepLayout,
    first: int,
    tokens: int,
    tile: int,
    qkv_at: int,
    qkv_stride: int,
    q_at: int,
    capacity: int,
) -> Dispatch:
    """Add biases, normalize heads, rotate; queries go to the scratch, scaled, keys and values to their positions.

    ``qkv`` has a token's heads of queries, keys and values side by side, token ``first`` at ``qkv_at``. Sets: vectors;
    parameters, qkv and q; keys and values.
    """
    own = attention
    normed = own.q_norm_at is not None and own.k_norm_at is not None
    at = [ABSENT if place is None else place for place in (own.bias_at, own.q_norm_at, own.k_norm_at)]
    push = words(
        step.positions_at + first,
        step.rotation_at + first * own.head_dim,
        qkv_at,
        qkv_stride,
        q_at,
        own.heads,
        own.kv_heads,
        own.head_dim,
        own.rows(tile),
        tile,
        capacity,
        int(own.interleaved),
        *at,
        float(own.head_dim**-0.5),
        float(own.eps),
    )
    return Dispatch("rope_norm" if normed else "rope", push, (own.heads + 2 * own.kv_heads, tokens, 1))


def scores(
    texel: bool,
    attention: Attention,
    step: StepLayout,
    first: int,
    count: int,
    tile: int,
    q_at: int,
    capacity: int,
    context: int,
) -> Dispatch:
    """Products of a unit's queries with the keys up to its last position; ``context`` is what the scratch has room for.

    ``q_at`` is the unit's tile. Sets: none; parameters, q and scores; keys and values.
    """
    own = attention
    once, rows = own.rows_at_once(tile), own.rows(tile)
    at, dims = quads(q_at, own.head_dim)
    push = words(step.positions_at + first, count, at, rows, dims, capacity, context)
    shape = (groups(context, POSITIONS_PER_GROUP[texel]), own.kv_heads, groups(count * own.group, once))
    return Dispatch(f"scores_{way(texel)}_{once}", push, shape)


def softmax(
    texel: bool, attention: Attention, step: StepLayout, first: int, count: int, tile: int, context: int
) -> Dispatch:
    """Replace scores by ``exp(score - highest)``, and give 1 / their sum, over each row's own positions.

    Set 1: parameters, scores to read, scores to write (the same buffer) and sums.
    """
    own = attention
    push = words(step.positions_at + first, own.group, own.rows(tile), context)
    return Dispatch(f"softmax_{way(texel)}", push, (count * own.group, own.kv_heads, 1))


def values(
    texel: bool,
    attention: Attention,
    step: StepLayout,
    first: int,
    count: int,
    tile: int,
    out_at: int,
    out_stride: int,
    capacity: int,
    context: int,
) -> Dispatch:
    """The weighted mean of values for each row of a unit, token ``first`` at ``out_at``.

    Sets: none; parameters, scores, sums and out; keys and values.
    """
    own = attention
    once, rows = own.rows_at_once(tile), own.rows(tile)
    dims, *places = quads(own.head_dim, context, out_at, out_stride)
    push = words(step.positions_at + first, count, own.group, rows, dims, capacity, *places)
    shape = (groups(own.head_dim, DIMENSIONS_PER_GROUP[texel]), own.kv_heads, groups(count * own.group, once))
    return Dispatch(f"values_{way(texel)}_{once}", push, shape)
