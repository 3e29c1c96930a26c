"""Quantized weights stay quantized: bit for bit those of the file, in the bytes of the plan and as measured."""

from __future__ import annotations

import json

import numpy as np
import pytest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.locate import ModelSource
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from support import tiny_models
from support.mlx_models import load, logits, needs_mlx, write_quantized
from support.reference import MODEL, opened
from support.tiny_models import TOKENS, write_folder, write_gguf

needs_mlx()

import mlx.core as mx  # noqa: E402 - skipped without it
from coresident.runtime.backends.mlx.description import read_facts  # noqa: E402
from coresident.runtime.backends.mlx.gguf_weights import BITS, GROUP, pack  # noqa: E402
from coresident.runtime.backends.mlx.planning import model_plan  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402

KINDS = tuple(BITS)
NOTHING = PlanRequest(context=1, slots=0, chunk=1)


def random_blocks(kind: str, rows: int, blocks: int, seed: int) -> np.ndarray:
    """Rows of any codes, with scales as real files have them."""
    size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    draw = np.random.default_rng(seed)
    raw = draw.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    halves = 1 if kind in ("Q4_0", "Q8_0") else 2
    scales = draw.uniform(-0.1, 0.1, (rows, blocks, halves)).astype(np.float16)
    raw[..., : 2 * halves] = scales.view(np.uint8)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.integers(1, 5), blocks=st.integers(1, 4), seed=st.integers(0, 1 << 30))
@settings(max_examples=15, deadline=None)
def test_E9_repacked_blocks_hold_the_values_of_the_file(kind, rows, blocks, seed):
    raw = random_blocks(kind, rows, blocks, seed)
    packed = pack(raw, kind)
    arrays = [mx.array(part) for part in (packed.weight, packed.scales, packed.biases)]
    values = np.array(mx.dequantize(*arrays, group_size=GROUP, bits=BITS[kind]))
    expected = dequantize(raw, GGMLQuantizationType[kind])
    # The product and the sum are rounded once more than in ggml's order of operations.
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_E9_a_product_with_a_vector_is_that_of_the_expanded_matrix(kind):
    raw = random_blocks(kind, 96, 2 if kind == "Q4_K" else 16, seed=3)
    packed, expanded = pack(raw, kind), dequantize(raw, GGMLQuantizationType[kind])
    vector = np.random.default_rng(4).standard_normal(expanded.shape[1]).astype(np.float32)
    arrays = [mx.array(part) for part in (packed.weight, packed.scales, packed.biases)]
    got = np.array(
        mx.quantized_matmul(mx.array(vector[None]), *arrays, transpose=True, group_size=GROUP, bits=BITS[kind])
    )
    expected = expanded.astype(np.float64) @ vector
    assert np.abs(got[0] - expected).max() / np.sqrt(np.mean(expected**2)) <= 1e-3


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_the_codes_are_those_that_mlx_itself_reads(kind, tmp_path):
    """MLX's own reader of GGUF keeps these types quantized, with scales as halves."""
    path = write_gguf(tmp_path / "model.gguf", "llama", GGMLQuantizationType[kind])
    _, loaded = load(path)
    theirs = mx.load(str(path))
    ours = dict(tree_flatten(loaded.weights.parameters()))
    for part in ("weight", "scales", "biases"):
        one, other = ours[f"model.layers.1.mlp.up_proj.{part}"], theirs[f"blk.1.ffn_up.{part}"]
        assert np.array_equal(np.array(one), np.array(other.astype(one.dtype)))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_E9_a_quantized_file_takes_its_quantized_bytes_as_planned_and_measured(kind, tmp_path):
    path = write_gguf(tmp_path / "model.gguf", "qwen2", GGMLQuantizationType[kind])
    plain = model_plan("m", read_facts(ModelSource(str(write_gguf(tmp_path / "f32", "qwen2")))), NOTHING, None, 1)
    mx.synchronize()
    before = mx.get_active_memory()
    facts, loaded = load(path)
    plan = model_plan("m", facts, NOTHING, None, 1)
    grown = mx.get_active_memory() - before
    held = {name: array.nbytes for name, array in tree_flatten(loaded.weights.parameters())}
    assert plan.total == sum(held.values())
    assert abs(grown - plan.total) <= 4096
    matrix = {"Q4_0": 6, "Q4_1": 6, "Q8_0": 10}[kind] / 32
    assert plan.total < plain.total * (matrix + 0.02)


def test_a_quantized_files_numbers_are_those_of_its_values(tmp_path):
    """The reference backend expands the same file."""
    for kind in ("Q4_1", "Q8_0"):
        path = write_gguf(tmp_path / kind, "llama", GGMLQuantizationType[kind])
        facts, loaded = load(path)
        reference = opened(ModelSource(str(path)), PlanRequest(context=64, slots=1, chunk=64))
        expected = KVSession(reference, MODEL, 0, 64).logits(TOKENS)
        np.testing.assert_allclose(logits(facts, loaded, TOKENS), expected, rtol=1e-4, atol=2e-4)


def test_types_that_mlx_does_not_have_are_expanded_and_the_label_says_so(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", "llama", GGMLQuantizationType.Q5_0)
    facts, _ = load(path)
    assert "Q5_0 matrices expanded to float32" in facts.description.label
    assert {array.dtype for array in facts.arrays} == {"float32"}


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 64), (3, 32)])
def test_a_folder_of_the_mlx_community_stays_quantized(bits, group, tmp_path):
    plain = write_folder(tmp_path / "plain", "llama")
    facts, loaded = load(write_quantized(tmp_path / "quantized", plain, bits, group))
    assert f"{bits} bits in groups of {group}" in facts.description.label
    arrays = {array.name: array for array in facts.arrays}
    up = arrays["model.layers.0.mlp.up_proj.weight"]
    assert (up.shape, up.dtype) == ((96, 64 * bits // 32), "uint32")
    weights = mx.load(str(tmp_path / "quantized" / "model.safetensors"))
    # What the file holds, expanded: the plain model with these values gives the same.
    expanded = write_folder(tmp_path / "expanded", "llama")
    values = {
        name: mx.dequantize(
            *(weights[f"{name.removesuffix('.weight')}.{part}"].astype(kind) for part, kind in PARTS.items()),
            group_size=group,
            bits=bits,
        )
        if array.dtype == mx.uint32
        else array
        for name, array in weights.items()
        if name.endswith(".weight")
    }
    mx.save_safetensors(str(expanded / "model.safetensors"), values)
    other, unpacked = load(expanded)
    np.testing.assert_allclose(logits(facts, loaded, TOKENS), logits(other, unpacked, TOKENS), rtol=1e-4, atol=2e-4)
    assert facts.description.parameters == other.description.parameters


PARTS = {"weight": mx.uint32, "scales": mx.float32, "biases": mx.float32}


def test_one_module_may_have_a_quantization_of_its_own(tmp_path):
    folder = write_quantized(tmp_path / "quantized", write_folder(tmp_path / "plain", "llama"))
    weights = dict(mx.load(str(folder / "model.safetensors")))
    plain = mx.load(str(tmp_path / "plain" / "model.safetensors"))["lm_head.weight"]
    names = ("lm_head.weight", "lm_head.scales", "lm_head.biases")
    weights |= dict(zip(names, mx.quantize(plain, group_size=64, bits=8), strict=True))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    settings = json.loads((folder / "config.json").read_text())
    settings["quantization"]["lm_head"] = {"group_size": 64, "bits": 8}
    (folder / "config.json").write_text(json.dumps(settings))
    facts, loaded = load(folder)
    assert logits(facts, loaded, TOKENS).shape == (len(TOKENS), 160)
    assert {array.name: array.shape for array in facts.arrays}["lm_head.weight"] == (160, 16)


def test_E9_a_Q4_K_file_stays_quantized(tmp_path, monkeypatch):
    """Its blocks have 256 values, more than the tiny models' rows; the ``gguf`` package can't make them, so any do."""
    monkeypatch.setattr(tiny_models, "HIDDEN", 256)
    monkeypatch.setattr(tiny_models, "MLP", 256)
    monkeypatch.setattr(
        tiny_models, "quantize", lambda values, kind: random_blocks(kind.name, len(values), values.shape[1] // 256, 1)
    )
    path = write_gguf(tmp_path / "model.gguf", "llama", GGMLQuantizationType.Q4_K)
    facts, loaded = load(path)
    arrays = {array.name: array for array in facts.arrays}
    assert arrays["model.layers.1.mlp.up_proj.weight"].shape == (256, 256 * 4 // 32)
    reference = opened(ModelSource(str(path)), PlanRequest(context=64, slots=1, chunk=64))
    expected = KVSession(reference, MODEL, 0, 64).logits(TOKENS)
    spread = np.abs(expected).max()
    np.testing.assert_allclose(logits(facts, loaded, TOKENS), expected, rtol=0, atol=1e-4 * spread)
