"""Sampling: the first maximum, seeded draws from the right distribution, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.runtime.models.sampling import FIRST_RANKED, SamplingParams, make_sampler, ranked
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

LOGITS = hnp.arrays(np.float32, st.integers(1, 60), elements=st.integers(-4, 4).map(float))
SEEDS = st.integers(0, 2**64 - 1)


def rows(count: int, vocabulary: int = 2000, seed: int = 5) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(count, vocabulary)) * 3).astype(np.float32)


def draw(params: SamplingParams, logits: np.ndarray, count: int) -> list[int]:
    sampler = make_sampler(params)
    return [sampler.sample(logits).token for _ in range(count)]


@given(logits=LOGITS)
def test_E3_greedy_takes_the_first_maximum(logits: np.ndarray):
    token = make_sampler(SamplingParams()).sample(logits).token
    assert logits[token] == logits.max()
    assert (logits[:token] < logits[token]).all()


@given(logits=LOGITS, seed=SEEDS, temperature=st.floats(1e-3, 100))
def test_top_k_of_one_is_greedy(logits: np.ndarray, seed: int, temperature: float):
    params = SamplingParams(temperature=temperature, top_k=1, seed=seed)
    assert draw(params, logits, 3) == [int(np.argmax(logits))] * 3


@given(logits=LOGITS, seed=SEEDS)
def test_a_tiny_top_p_keeps_exactly_the_first_maximum(logits: np.ndarray, seed: int):
    params = SamplingParams(temperature=1.0, top_p=1e-12, seed=seed)
    assert draw(params, logits, 3) == [int(np.argmax(logits))] * 3


@given(logits=LOGITS, seed=SEEDS, smallest=st.sampled_from([5e-324, 1e-300, 1e-30]))
def test_a_vanishing_temperature_draws_a_maximum(logits: np.ndarray, seed: int, smallest: float):
    token = make_sampler(SamplingParams(temperature=smallest, seed=seed)).sample(logits).token
    assert logits[token] == logits.max()


@given(logits=LOGITS, count=st.integers(1, 70))
def test_ranking_is_the_stable_descending_order(logits: np.ndarray, count: int):
    expected = sorted(range(logits.size), key=lambda i: (-logits[i], i))[:count]
    assert ranked(logits, count).tolist() == expected


@given(
    logits=LOGITS,
    seed=SEEDS,
    temperature=st.floats(0.1, 5),
    top_k=st.integers(0, 70),
    top_p=st.floats(0.01, 1),
)
def test_draws_invert_the_cumulative_weights_in_the_fixed_order(logits, seed, temperature, top_k, top_p):
    order = sorted(range(logits.size), key=lambda i: (-logits[i], i))[: top_k or None]
    weights = [math.exp((float(logits[i]) - float(logits.max())) / temperature) for i in order]
    kept, mass = 0, 0.0
    while kept < len(order) and (kept == 0 or mass < top_p * sum(weights)):
        mass, kept = mass + weights[kept], kept + 1
    token = draw(SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed), logits, 1)[0]
    uniform = np.random.Generator(np.random.Philox(seed)).random()
    position = order.index(token)
    # Both sums are rounded differently, so the bounds of the token's interval get the last digits as slack.
    assert position <= kept
    assert sum(weights[:position]) <= uniform * mass * (1 + 1e-9)
    assert uniform * mass <= sum(weights[: position + 1]) * (1 + 1e-9)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.7), (6, 0.8)])
def test_draws_follow_the_distribution(top_k: int, top_p: float):
    logits = np.array([1.0, 3.0, 2.5, 0.0, 2.0, -1.0, 1.5, 0.5], np.float32)
    params = SamplingParams(temperature=0.8, top_k=top_k, top_p=top_p, seed=11)
    order = np.argsort(-logits, kind="stable")
    expected = np.exp(logits.astype(np.float64) / 0.8)
    expected[order[top_k or logits.size :]] = 0
    expected /= expected.sum()
    before = np.cumsum(expected[order]) - expected[order]
    expected[order[before >= top_p]] = 0
    expected /= expected.sum()
    count = 4000
    seen = np.bincount(draw(params, logits, count), minlength=logits.size)
    possible = expected > 0
    assert not seen[~possible].any()
    statistic = ((seen - count * expected)[possible] ** 2 / (count * expected[possible])).sum()
    # Chi-square with up to 7 degrees of freedom exceeds 24.3 once in a thousand; the seed is fixed.
    assert statistic < 24.3


@pytest.mark.parametrize("params", [SamplingParams(1.0), SamplingParams(1.3, 40), SamplingParams(0.7, 0, 0.9)])
def test_a_seed_repeats_and_another_differs(params: SamplingParams):
    sequences = []
    for seed in (1, 1, 2):
        sampler = make_sampler(SamplingParams(params.temperature, params.top_k, params.top_p, seed))
        sequences.append([sampler.sample(row).token for row in rows(30)])
    assert sequences[0] == sequences[1] != sequences[2]


def test_streams_of_two_requests_are_independent():
    logits = rows(20)
    alone = make_sampler(SamplingParams(1.0, seed=3))
    expected = [alone.sample(row).token for row in logits]
    first, second = make_sampler(SamplingParams(1.0, seed=3)), make_sampler(SamplingParams(1.0, seed=4))
    mixed = []
    for row in logits:
        second.sample(row)
        mixed.append(first.sample(row).token)
        second.sample(row)
    assert mixed == expected


def test_a_flat_distribution_reaches_beyond_the_first_ranked():
    flat = np.zeros(FIRST_RANKED * 20, np.float32)
    tokens = draw(SamplingParams(1.0, seed=1), flat, 400)
    assert min(tokens) < FIRST_RANKED < max(tokens)
    # With equal weights the id is the draw itself, scaled.
    uniform = np.random.Generator(np.random.Philox(1)).random(400)
    assert tokens == [int(u * flat.size) for u in uniform]
    nucleus = draw(SamplingParams(1.0, top_p=0.5, seed=1), flat, 400)
    assert FIRST_RANKED < max(nucleus) < flat.size // 2 + 1


def test_every_token_can_be_drawn_at_top_p_one():
    logits = np.array([0.0, -8.0], np.float32)
    tokens = draw(SamplingParams(1.0, top_p=1.0, seed=9), logits, 20_000)
    assert 1 in tokens


@given(logits=LOGITS, temperature=st.sampled_from([0.0, 0.5, 2.0]), alternatives=st.integers(0, 20))
def test_logprobs_are_the_models_own(logits: np.ndarray, temperature: float, alternatives: int):
    sampled = make_sampler(SamplingParams(temperature, top_k=2, logprobs=alternatives)).sample(logits)
    own = logits.astype(np.float64) - np.logaddexp.reduce(logits.astype(np.float64))
    assert sampled.logprob == pytest.approx(own[sampled.token], abs=1e-9)
    order = sorted(range(logits.size), key=lambda i: (-logits[i], i))[:alternatives]
    assert [token for token, _ in sampled.top] == order
    assert [value for _, value in sampled.top] == pytest.approx([own[i] for i in order], abs=1e-9)


def test_without_logprobs_only_the_token_is_given():
    sampled = make_sampler(SamplingParams()).sample(rows(1)[0])
    assert (sampled.logprob, sampled.top) == (None, ())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_a_fault(temperature: float, bad: float):
    logits = rows(1)[0]
    logits[[7, 9]] = bad
    with pytest.raises(BackendFault, match=r"2 of 2000 logits.*token 7"):
        make_sampler(SamplingParams(temperature)).sample(logits)


@pytest.mark.parametrize("shape", [(0,), (2, 3), ()])
def test_logits_of_another_shape_are_a_fault(shape: tuple[int, ...]):
    with pytest.raises(BackendFault, match="shape"):
        make_sampler(SamplingParams()).sample(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", 1.0001),
        ("top_p", -1),
        ("top_p", math.nan),
        ("top_p", None),
        ("top_k", -1),
        ("top_k", 2.0),
        ("top_k", False),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", True),
    ],
)
def test_parameters_out_of_range_are_named(field: str, value: object):
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**{field: value})
    assert caught.value.details["field"] == field
    assert field in caught.value.message
    assert repr(value) in caught.value.message
