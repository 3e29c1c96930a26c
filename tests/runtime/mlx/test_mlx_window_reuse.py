"""A model with windows beside one without, on one backend: neither's retained heads see what the other does."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.locate import ModelSource

from support import tiny_models
from support.mlx_models import GEMMA3, needs_mlx, write_random
from support.reference import drain

needs_mlx()

CHUNK, HEAD = 24, 48
REQUEST = PlanRequest(context=96, slots=2, chunk=CHUNK)
TOKENS = [int(token) for token in np.random.default_rng(9).integers(0, GEMMA3["vocab_size"], 90)]
OTHERS = TOKENS[::-1]
PAIR = ("windowed", "plain")


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    from coresident.runtime.backends.mlx.backend import MlxBackend

    folder = tmp_path_factory.mktemp("pair")
    windowed = write_random(folder / "windowed", GEMMA3)
    plain = tiny_models.write_folder(folder / "plain", "llama")
    backend = MlxBackend({"windowed": ModelSource(str(windowed)), "plain": ModelSource(str(plain))})
    for model in PAIR:
        drain(backend.load(model, REQUEST, weights=True))
    return backend


def hit(backend, model: str, tail: list[int]) -> bytes:
    """Logits after ``tail`` behind the retained head, restored into a slot that held something else."""
    KVSession(backend, model, 0, CHUNK).prefill(OTHERS)
    drain(backend.restore(model, 0, HEAD, handle=1))
    return KVSession(backend, model, 0, CHUNK, tokens=TOKENS[:HEAD]).prefill(tail).tobytes()


@pytest.mark.parametrize(("model", "other"), [PAIR, PAIR[::-1]])
def test_FIELD_51_a_models_hits_are_exact_whatever_the_other_model_runs_in_between(backend, model, other):
    """Both retain under the same handle, and go on, trim and hit in turn, far past the window."""
    tails = [TOKENS[HEAD:70], OTHERS[:30], TOKENS[HEAD:70]]
    cold = [KVSession(backend, model, 1, CHUNK).prefill(TOKENS[:HEAD] + tail).tobytes() for tail in tails]
    for each in PAIR:
        head = KVSession(backend, each, 0, CHUNK)
        head.prefill(TOKENS[:HEAD])
        drain(backend.save(each, 0, HEAD, handle=1))
    hits = []
    for tail in tails:
        beside = KVSession(backend, other, 0, CHUNK)
        beside.prefill(OTHERS)
        beside.trim(HEAD - 1)
        beside.prefill(TOKENS[:20])
        hit(backend, other, OTHERS[:30])
        hits.append(hit(backend, model, tail))
    for each in PAIR:
        backend.drop(each, 1)
    assert hits == cold
    assert hits[0] != hits[1]
