"""Layers with a window on MLX: equal to the model's own forward pass, and any position can be gone back to."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.locate import ModelSource

from support.backends import opened_on
from support.mlx_models import GEMMA3, needs_mlx, write_random
from support.reference import MODEL, Keep, drain

needs_mlx()

WINDOW = GEMMA3["sliding_window"]
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, GEMMA3["vocab_size"], 90)]
CHUNK = 24
REQUEST = PlanRequest(context=96, slots=3, chunk=CHUNK)


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    source = ModelSource(str(write_random(tmp_path_factory.mktemp("windowed") / "model", GEMMA3)))
    return opened_on("mlx", source, REQUEST)


def session(backend, slot=0) -> KVSession:
    return KVSession(backend, MODEL, slot, CHUNK)


def own_forward(backend, tokens) -> np.ndarray:
    """Logits of all positions from mlx-lm's class alone, without a cache."""
    import mlx.core as mx

    model = backend._residents[MODEL].loaded().model.weights
    with backend._stream.entered():
        return np.array(model(mx.array([tokens]))[0])


def test_windows_are_part_of_the_description(backend):
    assert backend.describe(MODEL).windows == (WINDOW, WINDOW, None)


@pytest.mark.parametrize("chunk", [1, 5, WINDOW, WINDOW + 1, CHUNK, 90])
def test_FIELD_54_chunks_wider_and_narrower_than_the_window_equal_the_models_own_forward(backend, chunk):
    ours = KVSession(backend, MODEL, 0, chunk).logits(TOKENS)
    np.testing.assert_allclose(ours, own_forward(backend, TOKENS), atol=2e-4)


def test_decoding_past_the_window_equals_the_models_own_forward(backend):
    going = session(backend)
    going.prefill(TOKENS[:10])
    expected = own_forward(backend, TOKENS[:60])
    for at in range(10, 60):
        np.testing.assert_allclose(going.step(TOKENS[at]), expected[at], atol=2e-4)


@pytest.mark.parametrize("kept", [CHUNK, 2 * CHUNK])
def test_FIELD_49_two_users_with_one_head_go_on_each_with_their_own(backend, kept):
    """A head that is longer than the window is taken from another conversation, which has gone on far past it."""
    first = session(backend)
    first.prefill(TOKENS)
    tail = TOKENS[::-1][:20]
    second = first.from_prefix(slot=1, tokens=kept)
    cold = session(backend, 2)
    assert second.prefill(tail).tobytes() == cold.prefill(TOKENS[:kept] + tail).tobytes()


def test_FIELD_51_a_windowed_models_retained_head_is_as_it_was_whatever_came_after(backend):
    cold = session(backend, 2).prefill(TOKENS[:70]).tobytes()
    one = session(backend)
    one.prefill(TOKENS[:48])
    drain(backend.save(MODEL, 0, 48, handle=1))
    one.prefill(TOKENS[::-1][:40])
    drain(backend.restore(MODEL, 0, 48, handle=1))
    backend.drop(MODEL, 1)
    again = KVSession(backend, MODEL, 0, CHUNK, tokens=TOKENS[:48])
    assert again.prefill(TOKENS[48:70]).tobytes() == cold


@pytest.mark.parametrize("kept", [48, 47])
def test_FIELD_47_a_trim_is_exact_in_every_layer_or_gives_other_numbers(backend, kept):
    trimmed = session(backend)
    trimmed.prefill(TOKENS)
    trimmed.trim(kept)
    cold = session(backend, 1)
    cold.prefill(TOKENS[:48])
    cold.trim(kept)
    wanted = cold.prefill(TOKENS[48:60])
    assert trimmed.prefill(TOKENS[48:60]).tobytes() == wanted.tobytes()
    assert trimmed.generate(5, Keep()) == cold.generate(5, Keep())
