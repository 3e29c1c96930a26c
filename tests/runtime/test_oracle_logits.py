"""The decoder against transformers: SmolLM2, and a tiny model of every family in both file formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.locate import ModelSource

from support import tiny_models
from support.reference import MODEL, Keep, opened

FIXTURES = Path(__file__).parent.parent / "fixtures"
PROMPTS = ("chat", "code", "prose")


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path):
    return opened(ModelSource(str(smollm2_path)), PlanRequest(context=256, slots=1, chunk=16))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_E8_smollm2_gives_the_logits_of_transformers(smollm2, prompt):
    expected = np.load(FIXTURES / "logits_smollm2.npz")
    session = KVSession(smollm2, MODEL, slot=0, chunk=16)
    logits = session.logits(expected[f"{prompt}_ids"].tolist())
    assert logits.argmax(-1).tolist() == expected[f"{prompt}_argmax"].tolist()
    last = expected[f"{prompt}_last"].astype(np.float32)
    assert np.abs(logits[-1] - last).max() <= 0.05
    assert cosine(logits[-1], last) >= 0.9999


@pytest.mark.parametrize("prompt", PROMPTS)
def test_E8_smollm2_continues_greedily_like_transformers(smollm2, prompt):
    expected = np.load(FIXTURES / "logits_smollm2.npz")
    session = KVSession(smollm2, MODEL, slot=0, chunk=16)
    session.prefill(expected[f"{prompt}_ids"].tolist())
    assert list(session.generate(12, Keep())) == expected[f"{prompt}_greedy"].tolist()


FORMS = [(family, form) for family in sorted(tiny_models.SETTINGS) for form in ("folder", "sharded")]
GGUF_FORMS = [(family, "gguf") for family in ("llama", "qwen2", "qwen3")]


@pytest.mark.parametrize(("family", "form"), FORMS + GGUF_FORMS)
def test_every_family_gives_the_logits_of_transformers(family, form, tmp_path):
    path = tmp_path / "model"
    if form == "gguf":
        tiny_models.write_gguf(path, family)
    else:
        tiny_models.write_folder(path, family, shards=3 if form == "sharded" else 1)
    backend = opened(ModelSource(str(path)), PlanRequest(context=64, slots=1, chunk=8))
    logits = KVSession(backend, MODEL, slot=0, chunk=8).logits(tiny_models.TOKENS)
    expected = np.load(FIXTURES / "logits_tiny.npz")[family]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=2e-4)


def test_families_differ():
    """The fixtures can tell the families' variations apart."""
    arrays = np.load(FIXTURES / "logits_tiny.npz")
    assert np.abs(arrays["llama_linear"] - arrays["llama_llama3"]).max() > 0.05


def cosine(one, other):
    one, other = one.astype(np.float64), other.astype(np.float64)
    return one @ other / np.sqrt((one @ one) * (other @ other))
