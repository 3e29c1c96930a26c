"""Weights as the products want them, laid out once while they are read.

Matrices are stored ``(inputs, outputs)``, so that ``x @ W`` runs through contiguous rows for a single position and
for a chunk alike. Query, key and value share one matrix. Rotary pairs are neighbours, so that a head's rotation is
one complex product. The attention scale is folded into the query side. Each layer is one allocation; the embedding is
held once and is the output matrix too when they are tied.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import attrs
import numpy as np
from numpy.typing import NDArray

from ...models.architecture import DecoderConfig
from ...models.checkpoint import Checkpoint, RowIndex, Tensor
from ..contract import Segment
from .workspace import ALIGNMENT, aligned, aligned_empty

Array = NDArray[np.float32]


@attrs.frozen(eq=False)
class LayerWeights:
    """One layer's arrays, float32; biases and head norms only where the architecture has them."""

    attention_norm: Array
    qkv: Array
    o: Array
    mlp_norm: Array
    gate: Array
    up: Array
    down: Array
    qkv_bias: Array | None = None
    q_norm: Array | None = None
    k_norm: Array | None = None


@attrs.frozen(eq=False)
class ModelWeights:
    """All weights. ``embedding`` and ``output`` are ``(vocabulary, hidden)``, one array when tied."""

    config: DecoderConfig
    layers: tuple[LayerWeights, ...]
    embedding: Array
    output: Array
    final_norm: Array
    frequencies: NDArray[np.float64]


def layer_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of a layer's arrays as laid out."""
    width = config.q_width + 2 * config.kv_width
    shapes: dict[str, tuple[int, ...]] = {
        "attention_norm": (config.hidden,),
        "qkv": (config.hidden, width),
        "o": (config.q_width, config.hidden),
        "mlp_norm": (config.hidden,),
        "gate": (config.hidden, config.mlp),
        "up": (config.hidden, config.mlp),
        "down": (config.mlp, config.hidden),
    }
    if config.qkv_bias:
        shapes["qkv_bias"] = (width,)
    if config.qk_norm:
        shapes |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    return shapes


def layer_bytes(config: DecoderConfig) -> int:
    """Bytes of one layer's allocation."""
    return sum(aligned(4 * math.prod(shape)) for shape in layer_shapes(config).values()) + ALIGNMENT


def matrix_bytes(config: DecoderConfig) -> int:
    """Bytes of the embedding's allocation, and of the output matrix's where it is a second one."""
    return 4 * config.vocabulary * config.hidden + ALIGNMENT


def norm_bytes(config: DecoderConfig) -> int:
    """Bytes of the final norm's allocation."""
    return 4 * config.hidden + ALIGNMENT


def read_weights(checkpoint: Checkpoint) -> Generator[Segment, None, ModelWeights]:
    """Read and lay out every weight; a segment ends after each block of the embedding and each tensor of a layer."""
    config = checkpoint.config
    embedding = yield from _read_matrix(checkpoint.tensors["embedding"])
    output = embedding if config.tied else (yield from _read_matrix(checkpoint.tensors["output"]))
    layers: list[LayerWeights] = []
    for index in range(config.layers):
        layer = yield from _read_layer(checkpoint, index)
        layers.append(layer)
    final_norm = aligned_empty((config.hidden,))
    checkpoint.tensors["final_norm"].copy_to(final_norm)
    frequencies = config.rope.frequencies(config.head_dim)
    if checkpoint.rope_factors is not None:
        frequencies = frequencies / checkpoint.rope_factors
    return ModelWeights(config, tuple(layers), embedding, output, final_norm, frequencies)


def _read_matrix(tensor: Tensor) -> Generator[Segment, None, Array]:
    matrix = aligned_empty(tensor.shape)
    for rows, values in tensor.blocks():
        matrix[rows] = values
        yield Segment()
    return matrix


def _read_layer(checkpoint: Checkpoint, index: int) -> Generator[Segment, None, LayerWeights]:
    config = checkpoint.config
    arrays = _empty_layer(config)
    for name in config.layer_shapes():
        tensor = checkpoint.tensors[f"layers.{index}.{name}"]
        if not checkpoint.interleaved and (heads := _rotary_heads(config, name)):
            tensor = attrs.evolve(tensor, order=interleaved_rows(heads, config.head_dim))
        tensor.copy_to(_target(config, arrays, name))
        yield Segment()
    _fold_scale(config, arrays)
    return LayerWeights(**arrays)


def _empty_layer(config: DecoderConfig) -> dict[str, Array]:
    shapes = layer_shapes(config)
    flat = aligned_empty((layer_bytes(config) - ALIGNMENT,), np.uint8)
    arrays: dict[str, Array] = {}
    start = 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        arrays[name] = flat[start : start + size].view(np.float32).reshape(shape)
        start += aligned(size)
    return arrays


def _target(config: DecoderConfig, arrays: dict[str, Array], name: str) -> Array:
    """Where a tensor of the file goes, as a view that has the tensor's own shape."""
    ends = np.cumsum([0, config.q_width, config.kv_width, config.kv_width]).tolist()
    part = {"q": 0, "k": 1, "v": 2}.get(name[0], 0)
    columns = slice(ends[part], ends[part + 1])
    if name in ("q", "k", "v"):
        return arrays["qkv"][:, columns].T
    if name in ("q_bias", "k_bias", "v_bias"):
        return arrays["qkv_bias"][columns]
    return arrays[name].T if arrays[name].ndim > 1 else arrays[name]


def _rotary_heads(config: DecoderConfig, name: str) -> int:
    """How many heads a tensor's rows make up; 0 when it isn't rotated."""
    rotated = {"q": config.heads, "q_bias": config.heads, "k": config.kv_heads, "k_bias": config.kv_heads}
    return rotated.get(name, 1 if name in ("q_norm", "k_norm") else 0)


def interleaved_rows(heads: int, head_dim: int) -> RowIndex:
    """Row order that turns rotary halves ``(i, i + d/2)`` of each head into neighbours."""
    halves = np.arange(heads * head_dim, dtype=np.intp).reshape(heads, 2, head_dim // 2)
    return halves.swapaxes(1, 2).reshape(-1)


def _fold_scale(config: DecoderConfig, arrays: dict[str, Array]) -> None:
    """Multiply the query side by ``1 / sqrt(head_dim)``; a head norm would undo it, so it goes behind that."""
    scale = np.float32(config.head_dim**-0.5)
    if config.qk_norm:
        arrays["q_norm"] *= scale
        return
    arrays["qkv"][:, : config.q_width] *= scale
    if config.qkv_bias:
        arrays["qkv_bias"][: config.q_width] *= scale
