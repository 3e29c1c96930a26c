"""Our own checkpoints, the synthetic one and GGUF files, as mlx-lm's Llama, Qwen2 and Qwen3 take them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module

from ...models.architecture import DecoderConfig, Rope
from ...models.checkpoint import Checkpoint, Tensor
from ...models.gguf_header import TensorInfo, read_header
from ...models.hf_folder import ENDS, LAYER
from .building import build, parameter_count, quantized
from .gguf_weights import BITS, GROUP, Packed, pack
from .weight_arrays import OpenedModel, Pending, check_arrays, half_or_full

ROWS_AT_ONCE = 4096
_ENDS = {ours: theirs for theirs, ours in ENDS.items()}
_LAYER = {ours: theirs for theirs, ours in LAYER.items()}
_DTYPES: dict[mx.Dtype, Any] = {mx.float32: np.float32, mx.float16: np.float16}


class FactoredRope(Module):
    """Rotary embedding whose frequencies are given one by one: GGUF keeps Llama 3's scaling as such factors."""

    def __init__(self, dims: int, traditional: bool, periods: mx.array) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dims, self.traditional = dims, traditional
        self._freqs = periods

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        return mx.fast.rope(
            x, self.dims, traditional=self.traditional, base=None, scale=1.0, offset=offset, freqs=self._freqs
        )


def open_checkpoint(checkpoint: Checkpoint) -> OpenedModel:
    """An empty model for a checkpoint, and how each of its arrays is read.

    Matrices of a type in ``BITS`` stay quantized; all others, and the norms, become ``half_or_full()``.
    """
    config, file = checkpoint.config, checkpoint.path or checkpoint.label
    settings = settings_of(config, checkpoint.interleaved)
    model = build(settings, file)
    parameters = parameter_count(model)
    packed = _packed(checkpoint)
    chosen = {
        _module(ours): {"group_size": GROUP, "bits": BITS[info.kind.name], "mode": "affine"}
        for ours, info in packed.items()
    }
    quantized(model, chosen, file)
    _set_rope_factors(model, checkpoint)
    pending: dict[str, Pending] = {}
    for ours, tensor in checkpoint.tensors.items():
        if ours in packed:
            pending |= _pending_packed(Path(file), _module(ours), packed[ours])
        else:
            pending[_their_name(ours)] = _pending_plain(tensor)
    check_arrays(model, pending, file)
    return OpenedModel(
        file=file,
        label=checkpoint.label + _expanded(checkpoint, set(packed)),
        architecture=config.architecture,
        digest=checkpoint.digest,
        context_limit=config.context_limit,
        vocabulary=config.vocabulary,
        parameters=parameters,
        stop_tokens=checkpoint.stop_tokens,
        path=checkpoint.path,
        settings=settings,
        model=model,
        pending=pending,
    )


def settings_of(config: DecoderConfig, interleaved: bool) -> dict[str, Any]:
    """The sizes as a ``config.json`` has them; ``interleaved`` rotary pairs are MLX's ``traditional`` ones."""
    return {
        "model_type": config.architecture,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.mlp,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.eps,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.context_limit,
        "rope_theta": config.rope.theta,
        "rope_scaling": _scaling(config.rope),
        "rope_traditional": interleaved,
        "tie_word_embeddings": config.tied,
    }


def _scaling(rope: Rope) -> dict[str, Any] | None:
    if rope.kind == "linear":
        return {"type": "linear", "factor": rope.factor}
    if rope.kind == "llama3":
        return {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low,
            "high_freq_factor": rope.high,
            "original_max_position_embeddings": rope.original_context,
        }
    return None


def _set_rope_factors(model: Any, checkpoint: Checkpoint) -> None:
    """``mx.fast.rope`` takes periods, the inverse of frequencies; all layers share one array of them."""
    if checkpoint.rope_factors is None:
        return
    config = checkpoint.config
    periods = checkpoint.rope_factors / config.rope.frequencies(config.head_dim)
    rope = FactoredRope(config.head_dim, checkpoint.interleaved, mx.array(periods.astype(np.float32)))
    for layer in model.layers:
        layer.self_attn.rope = rope


def _packed(checkpoint: Checkpoint) -> dict[str, TensorInfo]:
    """Where the tensors lie that stay quantized, by our names."""
    names = {ours: tensor.name for ours, tensor in checkpoint.tensors.items() if tensor.stored in BITS}
    if not names:
        return {}
    header = read_header(Path(str(checkpoint.path)))
    return {ours: header.tensors[name] for ours, name in names.items()}


def _expanded(checkpoint: Checkpoint, packed: set[str]) -> str:
    """What a label says about matrices whose quantization MLX doesn't have."""
    plain = ("F32", "F16", "BF16")
    kinds = {one.stored for ours, one in checkpoint.tensors.items() if ours not in packed and one.stored not in plain}
    if not kinds:
        return ""
    dtype = "float32" if half_or_full() == mx.float32 else "float16"
    return f"; its {', '.join(sorted(kinds))} matrices expanded to {dtype}"


def _their_name(ours: str) -> str:
    """``layers.3.q`` becomes ``model.layers.3.self_attn.q_proj.weight``."""
    if ours in _ENDS:
        return _ENDS[ours]
    _, index, name = ours.split(".")
    return f"model.layers.{index}.{_LAYER[name]}"


def _module(ours: str) -> str:
    return _their_name(ours).removesuffix(".weight")


def _pending_plain(tensor: Tensor) -> Pending:
    dtype = half_or_full()

    def read() -> mx.array:
        values = np.empty(tensor.shape, _DTYPES[dtype])
        for rows, block in tensor.blocks():
            values[rows] = block
        return mx.array(values)

    return Pending(tensor.shape, dtype, read)


def _pending_packed(path: Path, module: str, info: TensorInfo) -> dict[str, Pending]:
    """Weight, scales and biases; they come from one reading, which the last of them lets go."""
    rows, inputs = info.shape
    dtype = half_or_full()
    kept: dict[str, mx.array] = {}

    def part(name: str) -> mx.array:
        if not kept:
            read = _read_packed(path, info)
            kept["weight"] = mx.array(read.weight)
            kept["scales"] = mx.array(read.scales.astype(_DTYPES[dtype]))
            kept["biases"] = mx.array(read.biases.astype(_DTYPES[dtype]))
        return kept.pop(name)

    shapes = {
        "weight": ((rows, inputs * BITS[info.kind.name] // 32), mx.uint32),
        "scales": ((rows, inputs // GROUP), dtype),
        "biases": ((rows, inputs // GROUP), dtype),
    }
    return {f"{module}.{name}": Pending(shape, kind, partial(part, name)) for name, (shape, kind) in shapes.items()}


def _read_packed(path: Path, info: TensorInfo) -> Packed:
    """A matrix of the file repacked, some thousand rows at a time."""
    rows, inputs = info.shape
    raw = np.memmap(path, np.uint8, "r", info.offset, (rows, info.size // rows))
    kind = info.kind.name
    whole = Packed(
        np.empty((rows, inputs * BITS[kind] // 32), np.uint32),
        np.empty((rows, inputs // GROUP), np.float32),
        np.empty((rows, inputs // GROUP), np.float32),
    )
    for start in range(0, rows, ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        piece = pack(np.asarray(raw[some]), kind)
        whole.weight[some], whole.scales[some], whole.biases[some] = piece.weight, piece.scales, piece.biases
    return whole
