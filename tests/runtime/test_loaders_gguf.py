"""GGUF files: every quantization dequantized like the gguf package, every damage named before memory is spent."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import gguf
import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.models.gguf_file import KINDS, open_gguf, values
from coresident.runtime.models.gguf_header import read_header
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import tiny_models

KIND = GGMLQuantizationType


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_models.write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "llama")


@pytest.fixture
def copy(tiny, tmp_path):
    """Writes changed content to a file of its own."""

    def write(content: bytes):
        path = tmp_path / "changed.gguf"
        path.write_bytes(content)
        return path

    return write


def packed(kind: GGMLQuantizationType, rows: int, width: int) -> np.ndarray:
    """Random blocks whose scales are ordinary numbers."""
    block, size = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(kind.value)
    if kind.name in ("F32", "F16", "BF16"):
        plain = rng.standard_normal((rows, width)).astype(np.float32)
        return np.asarray(gguf.quants.quantize(plain, kind)).view(np.uint8).reshape(rows, width * size)
    raw = rng.integers(0, 256, (rows * width // block, size), dtype=np.uint8)
    scale = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    places = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}.get(kind.name, (0,))
    for place in places:
        raw[:, place : place + 2] = scale
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("name", KINDS)
def test_E9_every_quantization_gives_the_product_of_its_dequantized_weights(name):
    kind = KIND[name]
    raw = packed(kind, 24, 256)
    ours = values(raw, kind)
    typed = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    reference = np.asarray(gguf.dequantize(typed, kind), np.float32)
    vector = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    product = reference.astype(np.float64) @ vector
    assert ours.dtype == np.float32
    assert np.isfinite(ours).all()
    assert np.abs(ours @ vector - product).max() <= 1e-3 * np.sqrt(np.mean(product**2))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_a_quantized_file_is_read_as_its_dequantized_tensors(name, tmp_path):
    path = tiny_models.write_gguf(tmp_path / "model.gguf", "qwen2", KIND[name])
    checkpoint = open_gguf(path)
    original = tiny_models.tensors("qwen2")["model.layers.1.mlp.down_proj.weight"]
    packed_rows = gguf.quants.quantize(original, KIND[name])
    expected = np.asarray(gguf.dequantize(packed_rows, KIND[name]), np.float32)
    target = np.zeros(original.shape, np.float32)
    checkpoint.tensors["layers.1.down"].copy_to(target)
    np.testing.assert_array_equal(target, expected)
    assert name in checkpoint.label


def test_metadata_equals_what_the_gguf_package_reads(smollm2_path):
    header = read_header(smollm2_path)
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.rope.freq_base"] == 100000.0
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False
    assert len(header.metadata["tokenizer.ggml.tokens"]) == 49152
    assert header.metadata["tokenizer.ggml.merges"][:2] == ["Ġ t", "Ġ a"]
    assert len(header.tensors) == 272


def test_tensors_lie_where_the_gguf_package_finds_them(tiny):
    ours = read_header(tiny).tensors
    for tensor in gguf.GGUFReader(tiny).tensors:
        info = ours[tensor.name]
        assert (info.offset, info.size, info.kind) == (tensor.data_offset, tensor.n_bytes, tensor.tensor_type)
        assert info.shape == tuple(reversed([int(size) for size in tensor.shape]))


def test_a_file_cut_anywhere_is_refused(tiny, copy):
    content = tiny.read_bytes()
    data = min(info.offset for info in read_header(tiny).tensors.values())
    for length in [*range(0, data, 7), data, len(content) - 4096]:
        with pytest.raises(ArtifactInvalid, match=r"changed.gguf"):
            open_gguf(copy(content[:length]))


@given(place=st.integers(0, 2600), change=st.integers(1, 255))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_with_any_header_byte_changed_opens_or_is_refused(tiny, copy, place, change):
    content = bytearray(tiny.read_bytes())
    content[place] ^= change
    with suppress(ArtifactInvalid):
        assert open_gguf(copy(bytes(content))).config.parameters() < 1 << 20


HUGE = (1 << 63) - 1


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        ("magic", b"GGUF", b"FUGG", "magic is b'FUGG'"),
        ("version", struct.pack("<I", 3), struct.pack("<I", 1), "version is 1"),
        ("big endian", struct.pack("<I", 3), struct.pack(">I", 3), "version is 50331648"),
        ("alignment", b"general.name", b"general.xxxx", ""),
    ],
)
def test_damaged_beginnings_are_named(tiny, copy, name, old, new, named):
    content = tiny.read_bytes().replace(old, new, 1)
    if not named:
        assert open_gguf(copy(content)).label.startswith("changed (llama")
        return
    with pytest.raises(ArtifactInvalid, match=named):
        open_gguf(copy(content))


@pytest.mark.parametrize(
    ("at", "field"), [(8, "tensor count"), (16, "metadata count"), (24, "length of metadata key 0")]
)
@pytest.mark.parametrize("count", [HUGE, 1 << 40, 1 << 22])
def test_sizes_that_overflow_cost_no_memory(tiny, copy, at, field, count):
    content = bytearray(tiny.read_bytes())
    content[at : at + 8] = struct.pack("<Q", count)
    path = copy(bytes(content))
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactInvalid, match=f"{field}.* (is|{count})"):
            open_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def entry(content: bytearray, tensor: str) -> int:
    """Where a tensor's entry goes on after its name: dimensions, sizes, type, offset."""
    name = tensor.encode()
    return content.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)


@pytest.mark.parametrize(
    ("skip", "form", "value", "named"),
    [
        (0, "<I", 0, "dimensions of token_embd.weight is 0"),
        (0, "<I", 9, "dimensions of token_embd.weight is 9"),
        (4, "<Q", HUGE, "token_embd.weight.* is"),
        (12, "<Q", 1 << 40, "offset of token_embd.weight is"),
        (12, "<Q", 0, "vocabulary is 0"),
        (20, "<I", 4, "type of token_embd.weight is 4: no such"),
        (20, "<I", 24, "type of token_embd.weight is 'I8': supported are"),
        (24, "<Q", 7, "offset of token_embd.weight is 7: it must be a multiple of 32"),
        (24, "<Q", 1 << 62, "offset of token_embd.weight is 4611686018427387904.*truncated"),
    ],
)
def test_hostile_tensor_entries_are_named(tiny, copy, skip, form, value, named):
    content = bytearray(tiny.read_bytes())
    at = entry(content, "token_embd.weight") + skip
    content[at : at + struct.calcsize(form)] = struct.pack(form, value)
    with pytest.raises(ArtifactInvalid, match=named):
        open_gguf(copy(bytes(content)))


def changed_value(content: bytes, key: str, form: str, value: object) -> bytes:
    """Replace a scalar's value (after its type) in the metadata."""
    at = content.index(key.encode()) + len(key) + 4
    return content[:at] + struct.pack(form, value) + content[at + struct.calcsize(form) :]


@pytest.mark.parametrize(
    ("key", "form", "value", "named"),
    [
        ("llama.block_count", "<I", 3, "tensor layers.2.attention_norm is 'missing'"),
        ("llama.block_count", "<I", 1, "tensor is 'layers.1"),
        ("llama.block_count", "<I", 1 << 31, "block_count is 2147483648"),
        ("llama.embedding_length", "<I", 128, "asks? for"),
        ("llama.embedding_length", "<I", 0, "head_count"),
        ("llama.attention.head_count", "<I", 0, "head_count is 0"),
        ("llama.attention.head_count_kv", "<I", 3, "kv_heads is 3"),
        ("llama.feed_forward_length", "<I", 0, "mlp is 0"),
        ("llama.context_length", "<I", 0, "context_limit is 0"),
        ("llama.attention.layer_norm_rms_epsilon", "<f", float("nan"), "eps is nan"),
        ("llama.rope.freq_base", "<f", -1.0, "theta is -1.0"),
        ("tokenizer.ggml.eos_token_id", "<I", 160, "eos_token_id is 160"),
    ],
)
def test_sizes_that_contradict_are_named(tiny, copy, key, form, value, named):
    with pytest.raises(ArtifactInvalid, match=named):
        open_gguf(copy(changed_value(tiny.read_bytes(), key, form, value)))


def with_metadata(path, **extra):
    """A file without tensors and with this metadata on top of nothing."""
    writer = gguf.GGUFWriter(path, extra.pop("architecture", "llama"))
    for key, value in extra.items():
        name = key.replace("__", ".")
        writer.add_string(name, value) if isinstance(value, str) else writer.add_uint32(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"architecture": "mamba"}, "general.architecture is 'mamba': supported are llama, qwen2, qwen3"),
        ({"llama__expert_count": 8}, "llama.expert_count is 8"),
        ({"llama__attention__head_count": "nine"}, "head_count is 'nine': it must be a single int"),
        ({}, "llama.attention.head_count is 'missing'"),
        (
            {
                "llama__attention__head_count": 4,
                "llama__embedding_length": 64,
                "llama__vocab_size": 10,
                "llama__block_count": 1,
                "llama__rope__scaling__type": "yarn",
                "llama__attention__layer_norm_rms_epsilon": 1,
                "llama__feed_forward_length": 8,
            },
            "rope.scaling.type is 'yarn': supported are none, linear",
        ),
        (
            {"llama__attention__head_count": 4, "llama__embedding_length": 64, "llama__rope__dimension_count": 8},
            "rope.dimension_count is 8: only the head size 16",
        ),
    ],
)
def test_models_that_are_not_supported_are_named(tmp_path, extra, named):
    with pytest.raises(ArtifactInvalid, match=named):
        open_gguf(with_metadata(tmp_path / "model.gguf", **extra))


def test_a_key_given_twice_is_refused(tmp_path):
    key = struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 7)
    path = tmp_path / "twice.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + key * 2)
    with pytest.raises(ArtifactInvalid, match="metadata key is 'k': it occurs twice"):
        open_gguf(path)


def test_arrays_of_arrays_and_unknown_types_are_refused(tmp_path):
    path = tmp_path / "nested.gguf"
    for kinds, named in (
        (struct.pack("<II", 9, 9), "element type of k is 9"),
        (struct.pack("<I", 13), "type of k is 13"),
    ):
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
        path.write_bytes(head + kinds + b"\0" * 64)
        with pytest.raises(ArtifactInvalid, match=named):
            open_gguf(path)


def test_frequency_factors_divide_the_rotation(tmp_path):
    """Llama 3's scaling as GGUF stores it: factors equal to the linear kind's give the linear kind's logits."""
    from coresident.runtime.backends.contract import PlanRequest
    from coresident.runtime.backends.session import KVSession
    from coresident.runtime.models.locate import ModelSource

    from support.reference import MODEL, opened

    path = tiny_models.write_gguf(tmp_path / "factors.gguf", "llama_linear", factors=np.full(8, 4, np.float32))
    folder = tiny_models.write_folder(tmp_path / "linear", "llama_linear")
    results = []
    for model in (path, folder):
        backend = opened(ModelSource(str(model)), PlanRequest(context=32, slots=1, chunk=8))
        results.append(KVSession(backend, MODEL, 0, 8).logits(tiny_models.TOKENS))
    np.testing.assert_allclose(*results, atol=1e-4)


@pytest.mark.parametrize("factors", [np.full(7, 4, np.float32), np.zeros(8, np.float32)])
def test_frequency_factors_without_meaning_are_refused(tmp_path, factors):
    path = tiny_models.write_gguf(tmp_path / "factors.gguf", "llama_linear", factors=factors)
    with pytest.raises(ArtifactInvalid, match=r"rope_freqs.weight"):
        open_gguf(path)
