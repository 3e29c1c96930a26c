"""Hugging Face folders: dtypes, shards and settings, and every damage named with its file."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.models.architecture import Rope
from coresident.runtime.models.hf_folder import open_folder
from safetensors.numpy import load_file, save_file

from support import tiny_models


@pytest.fixture
def folder(tmp_path):
    return tiny_models.write_folder(tmp_path / "tiny", "llama")


@pytest.fixture
def sharded(tmp_path):
    return tiny_models.write_folder(tmp_path / "tiny", "llama", shards=3)


def change_config(folder, **changes):
    settings = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in settings.items() if value is not None})
    )


def change_index(folder, tensor, shard):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][tensor] = shard
    path.write_text(json.dumps(index))


def save_as(folder, dtype):
    """Store the weights in another type; safetensors' NumPy side has no bfloat16, so its file is written by hand."""
    weights = load_file(folder / "model.safetensors")
    if dtype == "F16":
        save_file({name: value.astype(np.float16) for name, value in weights.items()}, folder / "model.safetensors")
        return {name: value.astype(np.float16).astype(np.float32) for name, value in weights.items()}
    header, body, kept = {}, b"", {}
    for name, value in weights.items():
        upper = (value.view(np.uint32) >> 16).astype(np.uint16)
        kept[name] = (upper.astype(np.uint32) << 16).view(np.float32)
        header[name] = {"dtype": "BF16", "shape": value.shape, "data_offsets": [len(body), len(body) + upper.nbytes]}
        body += upper.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    return kept


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_is_widened_exactly(folder, dtype):
    kept = save_as(folder, dtype)
    checkpoint = open_folder(folder)
    tensor = checkpoint.tensors["layers.0.gate"]
    target = np.zeros(tensor.shape, np.float32)
    tensor.copy_to(target)
    np.testing.assert_array_equal(target, kept["model.layers.0.mlp.gate_proj.weight"])
    assert dtype in checkpoint.label


def test_shards_hold_the_same_model_as_one_file(folder, tmp_path):
    one, many = open_folder(folder), open_folder(tiny_models.write_folder(tmp_path / "many", "llama", shards=4))
    assert one.config == many.config
    assert one.digest != many.digest
    for name, tensor in one.tensors.items():
        first, second = np.zeros(tensor.shape, np.float32), np.zeros(tensor.shape, np.float32)
        tensor.copy_to(first)
        many.tensors[name].copy_to(second)
        np.testing.assert_array_equal(first, second)


def test_the_digest_follows_weights_and_settings(folder):
    before = open_folder(folder).digest
    assert open_folder(folder).digest == before
    change_config(folder, rms_norm_eps=1e-5, extra=1)
    changed = open_folder(folder).digest
    assert changed != before
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] + np.float32(1)
    save_file(weights, folder / "model.safetensors")
    assert open_folder(folder).digest not in (before, changed)


def test_stop_tokens_come_from_the_generation_config_first(folder):
    assert open_folder(folder).stop_tokens == (2,)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 2, 7]}))
    assert open_folder(folder).stop_tokens == (7, 2)
    change_config(folder, eos_token_id=None)
    (folder / "generation_config.json").unlink()
    assert open_folder(folder).stop_tokens == ()


def test_rope_settings_of_both_generations_of_configs_are_read(folder):
    assert open_folder(folder).config.rope == Rope(theta=500.0)
    change_config(folder, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 700.0})
    assert open_folder(folder).config.rope == Rope(theta=700.0)
    change_config(folder, rope_parameters={"rope_type": "linear", "rope_theta": 700, "factor": 2})
    assert open_folder(folder).config.rope == Rope(theta=700.0, kind="linear", factor=2.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba': supported are llama, qwen2, qwen3"),
        ({"model_type": None}, "model_type is 'missing'"),
        ({"hidden_size": "64"}, "hidden_size is '64': it must be a int"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 96}, "shape of tensor"),
        ({"hidden_size": 1 << 40}, "hidden is 1099511627776"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, "kv_heads is 3: it must divide the 4"),
        ({"head_dim": 15}, "head_dim is 15"),
        ({"num_hidden_layers": 1 << 30}, "num_hidden_layers is 1073741824"),
        ({"num_hidden_layers": 3}, "tensor layers.2.attention_norm is 'missing'"),
        ({"num_hidden_layers": 1}, "no such tensor"),
        ({"model_type": "qwen2"}, "tensor layers.0.q_bias is 'missing'"),
        ({"model_type": "qwen3"}, "tensor layers.0.q_norm is 'missing'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_type is 'yarn': supported are default, linear"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is 'missing'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.0}}, "rope factor is 0.0"),
        ({"rope_scaling": [1]}, r"rope_scaling is \[1\]"),
        ({"eos_token_id": 160}, "eos_token_id is 160"),
        ({"eos_token_id": "2"}, "eos_token_id is '2'"),
    ],
)
def test_settings_that_cannot_be_run_are_named(folder, changes, named):
    change_config(folder, **changes)
    with pytest.raises(ArtifactInvalid, match=named) as refusal:
        open_folder(folder)
    assert str(folder) in refusal.value.message


def test_a_llama3_blend_needs_its_factors_in_order(folder):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 4.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    change_config(folder, rope_scaling=scaling)
    with pytest.raises(ArtifactInvalid, match=r"rope high is 4.0"):
        open_folder(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "[" * 100_000])
def test_a_config_that_is_no_json_object_is_named(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(ArtifactInvalid, match=r"config\.json"):
        open_folder(folder)


def test_a_missing_shard_is_named(sharded):
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ArtifactInvalid, match=r"model-00002-of-00003.safetensors.*missing from the folder"):
        open_folder(sharded)


@pytest.mark.parametrize(
    "shard", ["../model.safetensors", "/etc/model.safetensors", "a/b.safetensors", "model.bin", 7, None]
)
def test_an_index_that_points_elsewhere_is_refused(sharded, shard):
    change_index(sharded, "model.norm.weight", shard)
    with pytest.raises(ArtifactInvalid, match=r"shard of model.norm.weight"):
        open_folder(sharded)


@pytest.mark.parametrize("weights", [None, [], {}])
def test_an_index_without_a_map_is_refused(sharded, weights):
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    with pytest.raises(ArtifactInvalid, match="weight_map"):
        open_folder(sharded)


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ArtifactInvalid, match=r"neither model.safetensors nor"):
        open_folder(folder)


def test_a_file_cut_anywhere_is_refused(folder):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for length in (0, 4, 8, 100, 2000, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ArtifactInvalid, match=r"model.safetensors.* cannot be read as safetensors"):
            open_folder(folder)


def test_a_header_length_beyond_the_file_is_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 62) + path.read_bytes()[8:])
    with pytest.raises(ArtifactInvalid, match="cannot be read as safetensors"):
        open_folder(folder)


def test_tensors_that_are_missing_unknown_twice_or_of_another_type_are_named(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    norm = weights["model.norm.weight"]
    cases = {
        "tensor final_norm is 'missing'": {k: v for k, v in weights.items() if k != "model.norm.weight"},
        "tensor is 'model.extra'": {**weights, "model.extra": norm},
        "dtype of model.norm.weight is 'F64'": {**weights, "model.norm.weight": norm.astype(np.float64)},
        "dtype of model.norm.weight is 'I8'": {**weights, "model.norm.weight": norm.astype(np.int8)},
    }
    for named, tensors in cases.items():
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(ArtifactInvalid, match=named):
            open_folder(folder)
    many = tiny_models.write_folder(tmp_path / "many", "llama", shards=2)
    shard = many / "model-00001-of-00002.safetensors"
    save_file({**load_file(shard), "model.norm.weight": norm, "lm_head.weight": weights["lm_head.weight"]}, shard)
    with pytest.raises(ArtifactInvalid, match="another shard holds it too"):
        open_folder(many)


def test_an_output_matrix_is_ignored_where_the_head_is_tied(folder):
    change_config(folder, tie_word_embeddings=True)
    checkpoint = open_folder(folder)
    assert checkpoint.config.tied
    assert "output" not in checkpoint.tensors
