"""Attention's kernels against float64, and their bits under every way to dispatch the same positions."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
import numpy as np
import pytest
from coresident.runtime.backends.vulkan.attending import Attention, kv_bytes, rope, scores, softmax, values
from coresident.runtime.backends.vulkan.parameters import StepLayout

from support.vulkan_kernels import bench, bits, floats, untouched

EPS, CAPACITY, CONTEXT, ROOM = 1e-6, 80, 128, 16


@attrs.frozen
class Case:
    """A layer's geometry and the tokens of one step: ``count`` of them from position ``start``."""

    heads: int
    kv_heads: int
    head_dim: int
    interleaved: bool
    start: int
    count: int
    normed: bool = False
    biased: bool = False
    loud: float = 1.0

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def attention(self) -> Attention:
        norms = (self.width, self.width + self.head_dim) if self.normed else (None, None)
        return Attention(
            self.heads, self.kv_heads, self.head_dim, self.interleaved, EPS, 0 if self.biased else None, *norms
        )

    @property
    def frequencies(self) -> Any:
        half = self.head_dim // 2
        return 10_000.0 ** (-np.arange(half) / half)


CASES = (
    Case(9, 3, 64, True, 37, 11),
    Case(4, 4, 16, False, 0, 8, normed=True, loud=40.0),
    Case(14, 2, 80, False, 61, 3, biased=True),
    Case(8, 2, 128, True, 5, 9, normed=True, biased=True),
    Case(6, 2, 4, True, 2, 2, loud=12.0),
)


@cache
def data(case: Case) -> dict[str, Any]:
    """Projections, vectors, and a slot whose positions before the step are filled and behind it NaN."""
    rng = np.random.default_rng(case.width)
    slot = rng.standard_normal((2, case.kv_heads, CAPACITY, case.head_dim), np.float32)
    slot[:, :, case.start :] = np.nan
    return {
        "qkv": rng.standard_normal((case.count, case.width + 8), np.float32) * np.float32(case.loud),
        "vectors": rng.standard_normal(case.width + 2 * case.head_dim, np.float32),
        "keys": slot[0].reshape(case.kv_heads, CAPACITY, -1, 4).swapaxes(1, 2).copy(),
        "values": slot[1].copy(),
    }


@attrs.define
class Run:
    """One step through attention's kernels, in steps of any size."""

    case: Case
    texel: bool
    tile: int
    keys: Any
    values: Any
    out: Any

    @classmethod
    def of(cls, case: Case, texel: bool, tile: int, cuts: tuple[int, ...] = ()) -> Run:
        own = data(case)
        out = floats(case.count, case.heads * case.head_dim)
        run = cls(case, texel, tile, own["keys"].copy(), own["values"].copy(), out)
        ends = (*cuts, case.count)
        for first, end in zip((0, *cuts), ends, strict=True):
            run.step(first, end)
        return run

    def step(self, first: int, end: int) -> None:
        """Tokens ``first`` to ``end`` as a step of their own."""
        case, tile, count = self.case, self.tile, end - first
        attention, own, layout = case.attention, data(case), StepLayout(ROOM, case.head_dim)
        told = np.zeros(layout.bytes, np.uint8)
        layout.write(told, [0] * count, range(case.start + first, case.start + end), case.frequencies)
        kv, q = [self.keys, self.values], floats(attention.query_floats(count, tile))
        stride = own["qkv"].shape[1]
        rotate = rope(attention, layout, 0, count, tile, first * stride, stride, 0, CAPACITY)
        bench().run(rotate, [own["vectors"]], [told, own["qkv"], q], kv)
        for unit in range(0, count, tile):
            some = min(tile, count - unit)
            found, sums = floats(attention.score_floats(tile, CONTEXT)), floats(attention.sum_floats(tile))
            q_at = attention.query_floats(unit, tile)
            common = attention, layout, unit, some, tile
            bench().run(scores(self.texel, *common, q_at, CAPACITY, CONTEXT), [], [told, q, found], kv)
            bench().run(softmax(self.texel, *common, CONTEXT), [], [told, found, found, sums])
            width = self.out.shape[1]
            dispatch = values(self.texel, *common, (first + unit) * width, width, CAPACITY, CONTEXT)
            bench().run(dispatch, [], [told, found, sums, self.out], kv)


@cache
def tiled(case: Case) -> Run:
    return Run.of(case, True, 8)


def rotated(case: Case, vectors: Any, angles: Any) -> Any:
    first, second = (np.s_[..., 0::2], np.s_[..., 1::2])
    if not case.interleaved:
        half = case.head_dim // 2
        first, second = np.s_[..., :half], np.s_[..., half:]
    turned, (a, b) = vectors.copy(), (vectors[first], vectors[second])
    turned[first], turned[second] = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
    return turned


def exact(case: Case) -> tuple[Any, Any, Any]:
    """Keys and values ``(kv_heads, positions, head_dim)`` and the result, in float64."""
    own, width = data(case), case.width
    x = own["qkv"][:, :width].astype(np.float64) + (own["vectors"][:width] if case.biased else 0)
    heads = x.reshape(case.count, -1, case.head_dim)
    q, k, v = np.split(heads, [case.heads, case.heads + case.kv_heads], axis=1)
    if case.normed:
        norms = own["vectors"][width:].reshape(2, -1)
        q, k = (z / np.sqrt((z**2).mean(-1, keepdims=True) + EPS) * w for z, w in zip((q, k), norms, strict=True))
    end = case.start + case.count
    angles = np.multiply.outer(np.arange(case.start, end), case.frequencies)[:, None]
    q, k = rotated(case, q, angles), rotated(case, k, angles)
    keys = own["keys"].swapaxes(1, 2).reshape(case.kv_heads, CAPACITY, -1)[:, : case.start]
    keys = np.concatenate([keys, k.swapaxes(0, 1)], axis=1)
    found = np.concatenate([own["values"][:, : case.start], v.swapaxes(0, 1)], axis=1)
    group = case.heads // case.kv_heads
    each = np.einsum("thd,hpd->thp", q, keys.repeat(group, 0)) / np.sqrt(case.head_dim)
    later = np.arange(end) > case.start + np.arange(case.count)[:, None]
    each = np.where(later[:, None], -np.inf, each)
    weights = np.exp(each - each.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return keys, found, np.einsum("thp,hpd->thd", weights, found.repeat(group, 0)).reshape(case.count, -1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_is_that_of_float64(case) -> None:
    run, (keys, found, out) = tiled(case), exact(case)
    end = case.start + case.count
    cached = run.keys.swapaxes(1, 2).reshape(case.kv_heads, CAPACITY, -1)
    assert np.allclose(cached[:, :end], keys, rtol=2e-6, atol=2e-6 * case.loud)
    assert np.allclose(run.values[:, :end], found, rtol=1e-6, atol=1e-6)
    assert np.isnan(cached[:, end:]).all()
    assert np.isnan(run.values[:, end:]).all()
    assert np.abs(run.out - out).max() <= 2e-5 * case.loud
    assert run.keys.nbytes == run.values.nbytes == kv_bytes(case.kv_heads, case.head_dim, CAPACITY)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_depend_neither_on_tiles_nor_on_chunks_nor_on_how_kernels_read(case) -> None:
    want = tiled(case)
    cuts = tuple(cut for cut in (1, 6) if cut < case.count)
    for texel, tile, where in ((True, 1, ()), (False, 8, ()), (False, 1, cuts[:1]), (True, 8, cuts)):
        run = Run.of(case, texel, tile, where)
        assert np.array_equal(bits(run.out), bits(want.out)), (texel, tile, where)
        assert np.array_equal(bits(run.keys), bits(want.keys))
        assert np.array_equal(bits(run.values), bits(want.values))


def softmaxed(texel: bool, rows: list[list[float]]) -> tuple[Any, Any]:
    """Weights of one token's scores and 1 / their sums, a row for each head of one KV head."""
    attention, layout = Attention(len(rows), 1, 4, True, EPS), StepLayout(8, 4)
    told = np.zeros(layout.bytes, np.uint8)
    layout.write(told, [0], [len(rows[0]) - 1], np.ones(2))
    found, shares = floats(attention.rows(1), CONTEXT), floats(attention.sum_floats(1))
    found[: len(rows), : len(rows[0])] = rows
    bench().run(softmax(texel, attention, layout, 0, 1, 1, CONTEXT), [], [told, found, found, shares])
    assert untouched(shares[len(rows) :]).all()
    return found[: len(rows), : len(rows[0])], shares[: len(rows)]


@pytest.mark.parametrize("texel", [True, False])
def test_softmax_holds_for_scores_of_any_size(texel) -> None:
    rng = np.random.default_rng(0)
    rows = [
        rng.uniform(-30_000, 30_000, 101),
        np.full(101, -3e38),
        np.linspace(-105, 0, 101),
        rng.standard_normal(101) * 5,
    ]
    given = np.array(rows, np.float32)
    weights, shares = softmaxed(texel, rows)
    exact = np.exp((given - given.max(1, keepdims=True)).astype(np.float64))
    # A device may take what is below the smallest normal number for 0.
    assert np.allclose(weights, exact, rtol=4e-7, atol=1.2e-38)
    assert np.allclose(shares * exact.sum(1), 1, rtol=0, atol=1e-6)
    assert (weights[np.arange(4), given.argmax(1)] == 1).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_score_that_is_not_finite_is_not_lost(bad) -> None:
    rows = [[0.0, 1.0, bad, 2.0, 3.0], [0.0] * 5]
    _, shares = softmaxed(True, rows)
    assert np.isnan(shares[0])
    assert np.isclose(shares[1], 0.2, rtol=1e-6)
