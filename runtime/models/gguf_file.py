"""GGUF model files: metadata to a :class:`DecoderConfig`, tensors by our names, dequantized a block of rows at a time.

Key and tensor names: ggml's docs/gguf.md and the ``gguf`` package's tables. The converter permutes the query and key
rows of Llama files so that rotary pairs are neighbours; Qwen files keep the two halves of each head.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TypeVar

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from .architecture import ARCHITECTURES, DecoderConfig, Rope, check_config, invalid
from .checkpoint import Checkpoint, RowIndex, Tensor, check_tensors, file_digest
from .gguf_header import GGUFHeader, TensorInfo, read_header

PLAIN = ("F32", "F16", "BF16")
KINDS = (*PLAIN, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
ENDS = {"token_embd.weight": "embedding", "output_norm.weight": "final_norm", "output.weight": "output"}
FACTORS = "rope_freqs.weight"
LAYER = {
    "attn_norm.weight": "attention_norm",
    "attn_q.weight": "q",
    "attn_k.weight": "k",
    "attn_v.weight": "v",
    "attn_q.bias": "q_bias",
    "attn_k.bias": "k_bias",
    "attn_v.bias": "v_bias",
    "attn_q_norm.weight": "q_norm",
    "attn_k_norm.weight": "k_norm",
    "attn_output.weight": "o",
    "ffn_norm.weight": "mlp_norm",
    "ffn_gate.weight": "gate",
    "ffn_up.weight": "up",
    "ffn_down.weight": "down",
}
STOP_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")

T = TypeVar("T", int, float, str)


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file; no weight is read.

    Raises:
        ArtifactInvalid: the file is damaged, or is no decoder that can be run; names file, field and value.
    """
    header = read_header(path)
    config = read_config(header)
    tensors = {_our_name(info.name): _tensor(path, info) for info in header.tensors.values() if info.name != FACTORS}
    check_tensors(config, tensors, header.file)
    quantization = Counter(info.kind.name for info in header.tensors.values() if len(info.shape) > 1)
    name = header.metadata.get("general.name") or path.stem
    return Checkpoint(
        label=f"{name} ({config.architecture}, {quantization.most_common(1)[0][0]}, {path.name})",
        config=config,
        tensors=tensors,
        stop_tokens=_stop_tokens(header, config.vocabulary),
        digest=file_digest(path),
        interleaved=config.architecture == "llama",
        path=str(path),
        metadata=header.metadata,
        rope_factors=_rope_factors(path, header, config),
    )


def read_config(header: GGUFHeader) -> DecoderConfig:
    """The decoder's sizes from the metadata and the tensor list."""
    architecture = _get(header, "general.architecture", str)
    if architecture not in ARCHITECTURES:
        why = f"supported are {', '.join(ARCHITECTURES)}"
        raise invalid(header.file, "general.architecture", architecture, why)
    for unsupported in ("expert_count", "attention.sliding_window"):
        if header.metadata.get(f"{architecture}.{unsupported}", 0):
            value = header.metadata[f"{architecture}.{unsupported}"]
            raise invalid(
                header.file, f"{architecture}.{unsupported}", value, "only dense, full attention is supported"
            )
    heads = _get(header, f"{architecture}.attention.head_count", int)
    hidden = _get(header, f"{architecture}.embedding_length", int)
    if not 0 < heads <= hidden:
        raise invalid(header.file, f"{architecture}.attention.head_count", heads, f"it must be from 1 to {hidden}")
    head_dim = _get(header, f"{architecture}.attention.key_length", int, hidden // heads)
    for same in ("attention.value_length", "rope.dimension_count"):
        if _get(header, f"{architecture}.{same}", int, head_dim) != head_dim:
            value = header.metadata[f"{architecture}.{same}"]
            raise invalid(header.file, f"{architecture}.{same}", value, f"only the head size {head_dim} is supported")
    embedding = header.tensors.get("token_embd.weight")
    config = DecoderConfig(
        architecture=architecture,
        hidden=hidden,
        layers=_get(header, f"{architecture}.block_count", int),
        heads=heads,
        kv_heads=_get(header, f"{architecture}.attention.head_count_kv", int, heads),
        head_dim=head_dim,
        mlp=_get(header, f"{architecture}.feed_forward_length", int),
        vocabulary=embedding.shape[0] if embedding else _get(header, f"{architecture}.vocab_size", int),
        eps=_get(header, f"{architecture}.attention.layer_norm_rms_epsilon", float),
        rope=_rope(header, architecture),
        tied="output.weight" not in header.tensors,
        context_limit=_get(header, f"{architecture}.context_length", int),
        qkv_bias="blk.0.attn_q.bias" in header.tensors,
        qk_norm=architecture == "qwen3",
    )
    _check_layer_count(header, config.layers)
    return check_config(config, header.file)


def _check_layer_count(header: GGUFHeader, layers: int) -> None:
    # Expected tensors are listed layer by layer, so an absurd count must not get that far.
    if layers > len(header.tensors):
        raise invalid(header.file, "block_count", layers, f"the file holds only {len(header.tensors)} tensors")


def _rope(header: GGUFHeader, architecture: str) -> Rope:
    theta = _get(header, f"{architecture}.rope.freq_base", float, 10000.0)
    kind = _get(header, f"{architecture}.rope.scaling.type", str, "none")
    factor = _get(header, f"{architecture}.rope.scaling.factor", float, 1.0)
    # Llama 3's scaling is not a kind in GGUF: its factors are baked into the tensor rope_freqs.
    if kind not in ("none", "linear"):
        raise invalid(header.file, f"{architecture}.rope.scaling.type", kind, "supported are none, linear")
    return Rope(theta=theta, kind=kind, factor=factor)


def _get(header: GGUFHeader, key: str, kind: type[T], default: T | None = None) -> T:
    """A metadata value of the right type; floats accept integers."""
    value = header.metadata.get(key, default)
    if value is None:
        raise invalid(header.file, key, "missing", "the model's sizes cannot be known without it")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return kind(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise invalid(header.file, key, value, f"it must be a single {kind.__name__}")
    return value


def _our_name(name: str) -> str:
    """``blk.3.attn_q.weight`` becomes ``layers.3.q``; unknown names stay as they are and are refused later."""
    if name in ENDS:
        return ENDS[name]
    head, _, rest = name.partition(".")
    index, _, tail = rest.partition(".")
    if head == "blk" and index.isdigit() and tail in LAYER:
        return f"layers.{int(index)}.{LAYER[tail]}"
    return name


def _tensor(path: Path, info: TensorInfo) -> Tensor:
    if info.kind.name not in KINDS:
        raise invalid(str(path), f"type of {info.name}", info.kind.name, f"supported are {', '.join(KINDS)}")
    if not info.size:
        raise invalid(str(path), f"shape of {info.name}", info.shape, "a tensor without values means nothing")
    if len(info.shape) == 1 and info.kind.name not in PLAIN:
        raise invalid(str(path), f"type of {info.name}", info.kind.name, f"vectors are stored as {', '.join(PLAIN)}")
    return Tensor(
        info.name,
        info.shape,
        info.kind.name,
        lambda rows: _read_rows(path, info, rows),
        lambda rows: np.asarray(_mapped(path, info)[rows]),
    )


def _mapped(path: Path, info: TensorInfo) -> NDArray[np.uint8]:
    return np.memmap(path, np.uint8, "r", info.offset, (info.shape[0], info.size // info.shape[0]))


def _read_rows(path: Path, info: TensorInfo, rows: RowIndex) -> NDArray[np.float32]:
    raw = np.asarray(_mapped(path, info)[rows])
    return values(raw, info.kind).reshape(len(rows), *info.shape[1:])


def values(raw: NDArray[np.uint8], kind: GGMLQuantizationType) -> NDArray[np.float32]:
    """Dequantize rows of packed bytes, shape ``(rows, bytes)``, to float32 ``(rows, values)``."""
    if kind is GGMLQuantizationType.F32:
        return raw.view("<f4").astype(np.float32, copy=False)
    if kind is GGMLQuantizationType.F16:
        return raw.view("<f2").astype(np.float32)
    return np.asarray(dequantize(raw, kind), np.float32)


def _stop_tokens(header: GGUFHeader, vocabulary: int) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for key in STOP_KEYS:
        value = header.metadata.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or not 0 <= value < vocabulary:
            raise invalid(header.file, key, value, f"it must be a token below {vocabulary}")
        found[value] = None
    return tuple(found)


def _rope_factors(path: Path, header: GGUFHeader, config: DecoderConfig) -> NDArray[np.float64] | None:
    info = header.tensors.get(FACTORS)
    if info is None:
        return None
    if info.shape != (config.head_dim // 2,) or info.kind.name not in ("F32", "F16"):
        raise invalid(
            header.file, f"shape of {FACTORS}", info.shape, f"{config.head_dim // 2} plain floats are expected"
        )
    factors = _read_rows(path, info, np.arange(info.shape[0])).astype(np.float64).reshape(-1)
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise invalid(header.file, FACTORS, factors.tolist(), "frequency factors must be finite and positive")
    return factors
