"""Files as mlx-lm's classes: the numbers of transformers, the reference's descriptions, refusals with reasons."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.models.locate import ModelSource

from support import tiny_models
from support.mlx_models import GEMMA3, load, logits, needs_mlx, write_random
from support.tiny_models import TOKENS, write_folder, write_gguf

needs_mlx()

from coresident.runtime.backends.mlx.description import read_facts  # noqa: E402 - needs MLX
from coresident.runtime.backends.mlx.loading import load_model  # noqa: E402
from coresident.runtime.backends.reference import ReferenceBackend  # noqa: E402

EXPECTED = np.load(Path(__file__).parents[2] / "fixtures" / "logits_tiny.npz")
FORMS = [(family, form) for family in sorted(tiny_models.SETTINGS) for form in ("folder", "sharded")]
GGUF_FORMS = [(family, "gguf") for family in ("llama", "qwen2", "qwen3")]


def written(path: Path, family: str, form: str) -> Path:
    if form == "gguf":
        return write_gguf(path, family)
    return write_folder(path, family, shards=3 if form == "sharded" else 1)


@pytest.mark.parametrize(("family", "form"), FORMS + GGUF_FORMS)
def test_every_family_gives_the_logits_of_transformers(family, form, tmp_path):
    facts, loaded = load(written(tmp_path / "model", family, form))
    np.testing.assert_allclose(logits(facts, loaded, TOKENS), EXPECTED[family], rtol=1e-4, atol=2e-4)


def test_a_gguf_file_that_keeps_llama_3_scaling_as_factors_gives_the_same(tmp_path):
    """Factors of wavelengths, as ggml's converter computes them from the settings."""
    scaling = tiny_models.settings("llama_llama3")["rope_scaling"]
    head_dim = tiny_models.HIDDEN // tiny_models.HEADS
    plain = tiny_models.settings("llama_llama3")["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = scaling["original_max_position_embeddings"] * plain / (2 * np.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    blend = np.clip((turns - low) / (high - low), 0, 1)
    factors = (1 / (blend + (1 - blend) / scaling["factor"])).astype(np.float32)
    facts, loaded = load(write_gguf(tmp_path / "model.gguf", "llama_llama3", factors=factors))
    np.testing.assert_allclose(logits(facts, loaded, TOKENS), EXPECTED["llama_llama3"], rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("form", ["synthetic", "folder", "gguf"])
def test_a_description_is_the_reference_backends(form, tmp_path):
    source = ModelSource() if form == "synthetic" else ModelSource(str(written(tmp_path / "model", "qwen3", form)))
    ours, reference = read_facts(source).description, ReferenceBackend({"m": source}).describe("m")
    same = ("digest", "architecture", "context_limit", "vocabulary", "parameters", "layers", "stop_tokens", "path")
    assert {name: getattr(ours, name) for name in same} == {name: getattr(reference, name) for name in same}
    assert ours.kv_bytes_per_token == reference.kv_bytes_per_token
    assert ours.windows == ()


def test_sliding_windows_are_those_of_the_model_class(tmp_path):
    facts, loaded = load(write_random(tmp_path / "gemma", GEMMA3))
    assert facts.description.windows == facts.sizes.windows == (8, 8, None)
    assert (facts.sizes.kv_heads, facts.sizes.head_dim, facts.description.kv_bytes_per_token) == (1, 16, 3 * 2 * 16 * 4)
    values = logits(facts, loaded, [5, 6, 7])
    assert values.shape == (3, 96)
    assert np.isfinite(values).all()


def test_a_text_model_inside_another_is_found(tmp_path):
    """The class for pictures and text keeps its text model, settings and names one level further down."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    facts, loaded = load(write_random(inner, GEMMA3))
    text = {name: value for name, value in GEMMA3.items() if name != "vocab_size"}
    write_random(outer, {"model_type": "gemma3", "text_config": text, "vocab_size": GEMMA3["vocab_size"]})
    wrapped_facts, wrapped = load(outer)
    assert wrapped_facts.sizes == facts.sizes
    assert wrapped_facts.description.context_limit == GEMMA3["max_position_embeddings"]
    assert np.array_equal(logits(wrapped_facts, wrapped, [5, 6, 7]), logits(facts, loaded, [5, 6, 7]))


def test_the_models_own_output_part_makes_the_logits(tmp_path):
    """A soft cap of the class is in them; the layers run once only."""
    settings = GEMMA3 | {"model_type": "gemma2", "final_logit_softcapping": 0.01, "attn_logit_softcapping": 50.0}
    facts, loaded = load(write_random(tmp_path / "gemma2", settings))
    values = logits(facts, loaded, [5, 6, 7])
    assert 0.005 < np.abs(values).max() <= 0.01


def test_mlx_lm_itself_is_never_imported():
    """It would take seconds and lower the process's limit of open files."""
    code = (
        "import resource, sys\n"
        "before = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "from coresident.runtime.models.locate import ModelSource\n"
        "from coresident.runtime.backends.mlx.description import read_facts\n"
        "read_facts(ModelSource())\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == before\n"
        "assert not {'mlx_lm', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def changed(folder: Path, **values: object) -> Path:
    settings = json.loads((folder / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "no_such_model"),
        ("model_type", "../llama"),
        ("model_type", "cache"),
        ("model_type", "olmo"),
        ("model_file", "mine.py"),
        ("num_hidden_layers", 5000),
        ("num_hidden_layers", -1),
        ("vocab_size", "many"),
        ("max_position_embeddings", None),
        ("quantization_config", {"quant_method": "awq"}),
        ("quantization", 4),
        ("eos_token_id", 1 << 20),
    ],
)
def test_a_setting_that_cannot_be_followed_is_refused_by_name(field, value, tmp_path):
    folder = changed(write_folder(tmp_path / "model", "llama"), **{field: value})
    with pytest.raises(ArtifactInvalid) as refused:
        read_facts(ModelSource(str(folder)))
    assert refused.value.details["field"] == field
    assert str(folder) in refused.value.message


def test_settings_that_the_class_refuses_are_an_error_of_the_file(tmp_path):
    folder = changed(write_folder(tmp_path / "model", "llama"), hidden_size="wide")
    with pytest.raises(ArtifactInvalid, match="does not take these settings"):
        read_facts(ModelSource(str(folder)))


def test_tensors_that_are_missing_misshapen_or_unknown_are_refused(tmp_path):
    import mlx.core as mx

    folder = write_folder(tmp_path / "model", "llama")
    arrays = mx.load(str(folder / "model.safetensors"))
    norm, extra = "model.norm.weight", "model.layers.0.extra.weight"
    for changes, named in (({norm: None}, norm), ({norm: mx.zeros(3)}, norm), ({extra: mx.zeros(3)}, extra)):
        chosen = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
        other = tmp_path / f"other-{len(list(tmp_path.iterdir()))}"
        other.mkdir()
        (other / "config.json").write_text((folder / "config.json").read_text())
        mx.save_safetensors(str(other / "model.safetensors"), chosen)
        with pytest.raises(ArtifactInvalid, match=named):
            read_facts(ModelSource(str(other)))


def test_damaged_weights_are_refused(tmp_path):
    folder = write_folder(tmp_path / "model", "llama")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    with pytest.raises(ArtifactInvalid, match="safetensors"):
        read_facts(ModelSource(str(folder)))


def test_a_model_that_keeps_other_state_than_keys_and_values_is_refused(tmp_path):
    settings = {
        "model_type": "mamba",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 64,
        "state_size": 8,
        "num_hidden_layers": 2,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
        "max_position_embeddings": 64,
    }
    folder = write_random(tmp_path / "mamba", settings)
    with pytest.raises(ArtifactInvalid, match="cannot be run in steps") as refused:
        read_facts(ModelSource(str(folder)))
    assert refused.value.details["field"] == "model_type"


def test_weights_that_changed_since_they_were_described_are_refused(tmp_path):
    source = ModelSource(str(write_folder(tmp_path / "model", "llama")))
    facts = read_facts(source)
    changed(tmp_path / "model", rope_theta=501.0)
    with pytest.raises(ArtifactInvalid, match="digest is"):
        next(load_model(source, facts))
