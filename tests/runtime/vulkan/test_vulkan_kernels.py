"""Norms, the gate, and what is read of a row of logits, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.errors import BackendFault
from coresident.runtime.backends.vulkan.dispatches import rms_norm, swiglu
from coresident.runtime.backends.vulkan.parameters import StepLayout
from coresident.runtime.backends.vulkan.ranking import NOTHING, STRETCH, partial_bytes, sumexp, top

from support.vulkan_kernels import bench, bits, floats, untouched

EPS = 1e-5


def normed(x, weight, weight_at=0):
    tokens, width = x.shape
    y = floats(tokens, width + 4)
    bench().run(rms_norm(width, tokens, 0, width, 0, width + 4, weight_at, EPS), [weight], [x, y])
    assert untouched(y[:, width:]).all()
    return y[:, :width]


@pytest.mark.parametrize("width", [4, 100, 576, 1536])
def test_R65_norms_hold_where_squares_leave_float16_and_nearly_float32(width) -> None:
    rng = np.random.default_rng(width)
    scale = np.array([[1e-12], [0.01], [1.0], [300.0], [1000.0], [60_000.0], [1e18]])
    x = (rng.uniform(0.5, 1.5, (7, width)) * rng.choice([-1, 1], (7, width)) * scale).astype(np.float32)
    weight = rng.standard_normal(2 * width, np.float32)
    wide = x.astype(np.float64)
    exact = wide / np.sqrt((wide**2).mean(1, keepdims=True) + EPS) * weight[width:]
    assert np.allclose(normed(x, weight, width), exact, rtol=1e-6, atol=1e-30)


def test_a_norm_beyond_float32_is_zero_and_touches_no_other_token() -> None:
    x = np.ones((3, 64), np.float32)
    x[1] = 3e19
    y = normed(x, np.full(64, 2, np.float32))
    assert not y[1].any()
    assert np.array_equal(bits(y[0]), bits(y[2]))
    assert np.allclose(y[0], 2, rtol=1e-5)


def test_a_norm_may_be_in_place() -> None:
    x = np.random.default_rng(5).standard_normal((2, 576), np.float32)
    weight = np.ones(576, np.float32)
    want = normed(x, weight)
    bench().run(rms_norm(576, 2, 0, 576, 0, 576, 0, EPS), [weight], [x, x])
    assert np.array_equal(bits(x), bits(want))


def test_the_gate_holds_for_gates_of_any_size() -> None:
    rng = np.random.default_rng(3)
    gate = rng.standard_normal((3, 100), np.float32) * np.float32(10)
    gate[0, :7] = [-1e30, -1000, -90, -88.5, 0, 88.8, 1e30]
    up = rng.standard_normal((3, 100), np.float32)
    want = gate / (1 + np.exp(-gate.astype(np.float64).clip(-700, 700))) * up
    out = floats(3, 100)
    bench().run(swiglu(100, 3, 0, 100, 0, 100, 0, 100), [], [gate, up, out])
    assert np.allclose(out, want, rtol=1e-6, atol=3e-38)
    bench().run(swiglu(100, 3, 0, 100, 0, 100, 0, 100), [], [gate, up, gate])
    assert np.array_equal(bits(gate), bits(out))


def test_sizes_that_a_kernel_would_round_down_are_refused() -> None:
    for build in (lambda: swiglu(102, 1, 0, 104, 0, 104, 0, 104), lambda: rms_norm(64, 1, 2, 64, 0, 64, 0, EPS)):
        with pytest.raises(BackendFault, match="not a multiple of 4"):
            build()


def ranked(logits, passes):
    """Results of passes, each below the one before: values, indices, and whether one was not finite; and the sum."""
    partial = np.zeros(partial_bytes(len(logits)), np.uint8)
    results = np.zeros((passes + 1, 4), np.uint32)
    dispatches = [d for n in range(passes) for d in top(len(logits), 0, n, n - 1 if n else None)]
    bench().run([*dispatches, *sumexp(len(logits), 0, 0, passes)], [], [logits, partial, results])
    values = results.view(np.float32)[:, 0]
    return values[:passes], results[:passes, 1].tolist(), results[:passes, 2].tolist(), values[passes]


@pytest.mark.parametrize("count", [1, 100, STRETCH, 3 * STRETCH + 5])
def test_passes_give_the_largest_in_order_and_the_first_of_equals(count) -> None:
    logits = np.random.default_rng(count).integers(-40, 40, count).astype(np.float32)
    logits[count // 2] = logits[-1] = 41
    passes = min(count, 9)
    order = np.lexsort((np.arange(count), -logits))[:passes]
    values, indices, broken, total = ranked(logits, passes)
    assert indices == order.tolist()
    assert np.array_equal(values, logits[order])
    assert not any(broken)
    assert np.isclose(total, np.exp(logits.astype(np.float64) - logits.max()).sum(), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_told_and_never_chosen(bad) -> None:
    logits = np.arange(3 * STRETCH, dtype=np.float32)
    logits[STRETCH + 7] = bad
    _, indices, broken, _ = ranked(logits, 2)
    assert indices == [3 * STRETCH - 1, 3 * STRETCH - 2]
    assert broken == [1, 1]
    _, indices, broken, _ = ranked(np.full(5, bad, np.float32), 1)
    assert indices == [NOTHING]
    assert broken == [1]


def test_a_pass_below_the_last_logit_finds_nothing() -> None:
    _, indices, broken, _ = ranked(np.array([2, 1], np.float32), 3)
    assert indices == [0, 1, NOTHING]
    assert broken == [0, 0, 0]


def test_angles_are_those_of_float64_at_long_contexts() -> None:
    step, positions = StepLayout(8, 64), [0, 1, 131_071]
    frequencies = 10_000.0 ** (-np.arange(32) / 32)
    told = np.zeros(step.bytes, np.uint8)
    step.write(told, [5, 6, 7], positions, frequencies)
    words = told.view(np.uint32)
    angles = np.multiply.outer(np.array(positions, np.float64), frequencies)
    pairs = words[step.rotation_at :].view(np.float32)[: 3 * 64].reshape(3, 32, 2)
    assert words[step.ids_at :][:3].tolist() == [5, 6, 7]
    assert words[step.positions_at :][:3].tolist() == positions
    assert np.array_equal(pairs, np.stack([np.cos(angles), np.sin(angles)], axis=2).astype(np.float32))
