"""Choosing tokens on MLX: plain greedy on the device, everything else by the samplers that other backends use."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.errors import BackendFault
from coresident.actors.work import StepKind
from coresident.runtime.backends.contract import DecodeInput
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.sampling import GreedySampler, SamplingParams, make_sampler

from support.backends import opened_on
from support.mlx_models import needs_mlx
from support.reference import MODEL, REQUEST, drain, prefill, workspace

needs_mlx()

TOKENS = [int(token) for token in np.random.default_rng(2).integers(0, 256, 40)]


@pytest.fixture
def backend():
    backend = opened_on("mlx")
    prefill(backend, 0, TOKENS)
    return backend


def decoded(backend, sampler):
    space = workspace(backend, StepKind.DECODE, 1, len(TOKENS))
    (sampled,), _ = drain(backend.decode(space, MODEL, [DecodeInput(0, len(TOKENS) - 1, TOKENS[-1])], [sampler]))
    space.close()
    return sampled


def replace_norm(backend, value):
    """Make every logit the same: zero, or not a number."""
    import mlx.core as mx

    norm = backend._residents[MODEL].loaded().model.weights.model.norm
    norm.weight = mx.full(norm.weight.shape, value)


def test_plain_greedy_needs_no_logits_on_the_host(backend, monkeypatch):
    wanted = decoded(backend, make_sampler(SamplingParams(logprobs=0))).token
    monkeypatch.delattr(GreedySampler, "sample")
    assert decoded(backend, make_sampler(SamplingParams())).token == wanted


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(logprobs=2)])
def test_of_equal_logits_the_first_is_taken(backend, params):
    replace_norm(backend, 0.0)
    assert decoded(backend, make_sampler(params)).token == 0


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(logprobs=2), SamplingParams(temperature=1.0)])
def test_logits_that_are_not_finite_are_a_fault(backend, params):
    replace_norm(backend, float("nan"))
    with pytest.raises(BackendFault, match="256 of 256 logits are not finite"):
        decoded(backend, make_sampler(params))


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.8, top_k=30, top_p=0.9, seed=11)])
def test_R56_a_seed_gives_the_tokens_that_the_reference_gives(params):
    chosen = []
    for name in ("reference", "mlx"):
        session = KVSession(opened_on(name), MODEL, 0, REQUEST.chunk)
        session.prefill(TOKENS)
        chosen.append(session.generate(20, make_sampler(params)))
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) > 1
