"""Norms of wide activations on every backend, whose squares overflow float16: scores are those of a float64 oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from coresident.actors.scoring import finish
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.heads import HeadFile, LinearHead, write_linear_heads
from coresident.runtime.models.locate import ModelSource
from gguf.constants import GGMLQuantizationType

from support import tiny_models
from support.backends import NAMES, needs, opened_on
from support.float64_forward import half_rms_norm, hidden_states, logits, rms_norm
from support.reference import MODEL, prefill, score

FIXTURES = Path(__file__).parent.parent / "fixtures"
CONFIG = tiny_models.settings("llama")
WIDTH = tiny_models.HIDDEN
WIDTHS = {"near_300": np.full(WIDTH, 300.0), "near_1000": np.full(WIDTH, 1000.0), "mixed": np.geomspace(1, 1000, WIDTH)}
NARROW = np.full(WIDTH, 1.0)
FORMS = ("gguf", "folder")

INSTRUCTION = list(tiny_models.TOKENS)
ROWS = [[(17 * row + 5 * at) % tiny_models.VOCABULARY for at in range(3 + row % 5)] for row in range(10)]
HEADS = ("fit", "safe")
BOUNDS = {"fit": 0.0036, "safe": 0.0012}
"""Ranks on a scale from 0 to 4, and probabilities."""
REQUEST = PlanRequest(context=32, slots=1, chunk=16, decision_slots=1, decision_context=32, heads=HEADS)


def widened(sizes: np.ndarray) -> dict[str, np.ndarray]:
    """The tiny Llama with values in float16, as float32: embeddings of about ``sizes``, one for each channel.

    Attention and MLP add about a quarter of that, so that their norms count for as much as the last one.
    """
    weights = tiny_models.tensors("llama")
    drawn = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = (np.sign(drawn) * 0.9 + drawn / 2) * sizes
    for name in weights:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weights[name] = weights[name] * sizes[:, None] / 10
    return {name: values.astype(np.float16).astype(np.float32) for name, values in weights.items()}


def last_states(weights: dict[str, np.ndarray], norm: Any = rms_norm) -> np.ndarray:
    """The last hidden state of every row behind the instruction, float64 ``(rows, hidden)``."""
    return np.stack([hidden_states(weights, CONFIG, INSTRUCTION + row, norm)[-1] for row in ROWS])


def spread(name: str, kind: str, states: np.ndarray, low: float, high: float) -> LinearHead:
    """A head whose raw values of these states go from ``low`` to ``high``."""
    weight = np.random.default_rng(len(name)).standard_normal(WIDTH)
    raw = states @ weight
    weight = (weight * (high - low) / np.ptp(raw)).astype(np.float32)
    return LinearHead(name, kind, weight, low - float((states @ weight).min()))


def finished(heads: tuple[LinearHead, ...], states: np.ndarray) -> dict[str, np.ndarray]:
    """Ranks and probabilities of all rows by the heads' formula, in float64."""
    raw = {head.name: states @ head.weight.astype(np.float64) + head.bias for head in heads}
    return {head.name: np.array(finish(head.name, head.kind, raw[head.name]).values) for head in heads}


def judged(weights: dict[str, np.ndarray]) -> tuple[tuple[LinearHead, ...], dict[str, np.ndarray]]:
    """Heads that tell the rows apart, and the oracle's scores by them."""
    states = last_states(weights)
    heads = spread("fit", "rank", states, 0, 4), spread("safe", "probability", states, -3, 3)
    return heads, finished(heads, states)


@attrs.frozen(eq=False)
class Wide:
    """A model file of float16 weights with two linear heads, and what they are to give for ``ROWS``."""

    source: ModelSource
    expected: dict[str, np.ndarray]


def written(folder: Path, form: str, sizes: np.ndarray) -> Wide:
    weights = widened(sizes)
    path = folder / "model"
    if form == "gguf":
        tiny_models.write_gguf(path, "llama", GGMLQuantizationType.F16, weights=weights)
    else:
        halves = {name: values.astype(np.float16) for name, values in weights.items()}
        tiny_models.write_folder(path, "llama", weights=halves)
    heads, expected = judged(weights)
    file = folder / "heads.safetensors"
    write_linear_heads(file, heads, ModelSource(str(path)).open().digest)
    return Wide(ModelSource(str(path), (HeadFile(str(file)),)), expected)


@pytest.fixture(scope="module", params=[(form, width) for form in FORMS for width in WIDTHS], ids="-".join)
def wide(request, tmp_path_factory) -> Wide:
    form, width = request.param
    return written(tmp_path_factory.mktemp("wide"), form, WIDTHS[width])


def decided(backend: Any) -> dict[str, np.ndarray]:
    """Finished scores of all rows by a backend."""
    prefill(backend, 0, INSTRUCTION, role="decision")
    raw = np.array([score(backend, 0, len(INSTRUCTION), row, HEADS) for row in ROWS])
    kinds = backend.head_kinds(MODEL)
    return {name: np.array(finish(name, kinds[name], raw[:, at]).values) for at, name in enumerate(HEADS)}


def check_within_bounds(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, bound in BOUNDS.items():
        assert np.isfinite(got[name]).all()
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=bound, err_msg=name)


def test_the_oracle_gives_the_logits_of_transformers():
    ours = logits(tiny_models.tensors("llama"), CONFIG, tiny_models.TOKENS)
    np.testing.assert_allclose(ours, np.load(FIXTURES / "logits_tiny.npz")["llama"], rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_R65_scores_of_wide_activations_are_those_of_the_oracle(name, wide):
    check_within_bounds(decided(opened_on(name, wide.source, REQUEST)), wide.expected)


def test_R65_scores_of_wide_activations_held_in_float16_are_those_of_the_oracle(wide, monkeypatch):
    """As MLX holds them on a GPU, wherever this runs."""
    needs("mlx")
    monkeypatch.setattr("coresident.runtime.backends.mlx.weight_arrays.on_cpu", lambda: False)
    backend = opened_on("mlx", wide.source, REQUEST)
    assert backend._residents[MODEL].facts.sizes.dtype == "float16"
    check_within_bounds(decided(backend), wide.expected)


@pytest.mark.parametrize("name", NAMES[1:])
def test_R65_final_logits_of_wide_activations_agree_between_the_backends(name, wide):
    reference, other = opened_on("reference", wide.source, REQUEST), opened_on(name, wide.source, REQUEST)
    ours, theirs = (KVSession(backend, MODEL, 0, 16).logits(INSTRUCTION) for backend in (reference, other))
    half = name == "mlx" and other._residents[MODEL].facts.sizes.dtype == "float16"
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=0.03 if half else 1e-4)
    assert np.ptp(ours) > 1


def half_judged(sizes: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Scores of a model by norms with squares in float16, and by the oracle's."""
    weights = widened(sizes)
    heads, expected = judged(weights)
    return finished(heads, last_states(weights, half_rms_norm)), expected


@pytest.mark.parametrize("width", WIDTHS)
def test_R65_squares_in_float16_would_give_other_scores(width):
    """The negative control: they overflow, the norm becomes 0, and scores are far off."""
    half, expected = half_judged(WIDTHS[width])
    for name, bound in BOUNDS.items():
        assert not np.abs(half[name] - expected[name]).max() <= 100 * bound


def test_R65_squares_in_float16_are_good_enough_for_narrow_activations():
    """So it is width alone that makes the control fail."""
    check_within_bounds(*half_judged(NARROW))
