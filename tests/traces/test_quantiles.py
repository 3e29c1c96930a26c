"""Samples: exact as long as they are few, in narrow bins beyond, and the same in whatever order they come."""

from __future__ import annotations

from coresident.traces.quantiles import Samples, Spread
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.lists(st.integers(-(2**40), 2**62), max_size=60)
POSITIVE = st.lists(st.integers(0, 2**62), min_size=9, max_size=60)


@given(VALUES)
def test_few_values_have_the_exact_spread(values):
    samples = Samples()
    samples.extend(values[:20])
    for value in values[20:]:
        samples.append(value)
    assert samples.spread() == samples.spread() == Spread.of(values)


@given(POSITIVE, st.randoms(use_true_random=False))
def test_many_values_are_summed_up_exactly_but_for_percentiles_that_are_low_by_a_bin(values, draw):
    one, other = Samples(exact=8), Samples(exact=8)
    one.extend(values)
    shuffled = draw.sample(values, len(values))
    for value in shuffled:
        other.append(value)
    exact, spread = Spread.of(values), one.spread()
    assert spread == other.spread()
    assert (spread.count, spread.total, spread.max) == (exact.count, exact.total, exact.max)
    for low, true in ((spread.p50, exact.p50), (spread.p95, exact.p95), (spread.p99, exact.p99)):
        assert low <= true <= low + low // 512
