"""A small Llama's forward pass in NumPy, float64 and apart from every backend, over weights by Hugging Face's names.

Source: transformers' ``modeling_llama.py`` (RMS norm, rotary halves, grouped attention, SwiGLU).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = Mapping[str, NDArray[Any]]
Norm = Callable[[Array, Array, float], Array]


def rms_norm(values: Array, weight: Array, eps: float) -> Array:
    """``values / rms(values) * weight`` over the last axis."""
    return values / np.sqrt(np.square(values).mean(-1, keepdims=True) + eps) * weight


def half_rms_norm(values: Array, weight: Array, eps: float) -> Array:
    """The same with squares and their mean in float16, which ends at 65,504: what a backend must not do."""
    with np.errstate(over="ignore"):
        mean = np.square(values.astype(np.float16)).mean(-1, keepdims=True, dtype=np.float16)
    return values / np.sqrt(mean.astype(np.float64) + eps) * weight


def hidden_states(weights: Weights, config: Mapping[str, Any], tokens: Sequence[int], norm: Norm = rms_norm) -> Array:
    """Normalized last hidden states, ``(len(tokens), hidden)``; ``config`` is that of ``config.json``."""

    def of(name: str) -> Array:
        return weights[f"{name}.weight"].astype(np.float64)

    eps = config["rms_norm_eps"]
    states = of("model.embed_tokens")[list(tokens)]
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        normed = norm(states, of(layer + "input_layernorm"), eps)
        queries, keys, values = (normed @ of(f"{layer}self_attn.{name}_proj").T for name in "qkv")
        states = states + _attend(queries, keys, values, config) @ of(layer + "self_attn.o_proj").T
        normed = norm(states, of(layer + "post_attention_layernorm"), eps)
        gate, up = (normed @ of(f"{layer}mlp.{name}_proj").T for name in ("gate", "up"))
        states = states + (gate / (1 + np.exp(-gate)) * up) @ of(layer + "mlp.down_proj").T
    return norm(states, of("model.norm"), eps)


def logits(weights: Weights, config: Mapping[str, Any], tokens: Sequence[int]) -> Array:
    """Logits of every token, ``(len(tokens), vocabulary)``."""
    output = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return hidden_states(weights, config, tokens) @ weights[output].astype(np.float64).T


def _attend(queries: Array, keys: Array, values: Array, config: Mapping[str, Any]) -> Array:
    """Causal attention from position 0, heads side by side; several query heads share a key head."""
    count, heads, kv_heads = len(queries), config["num_attention_heads"], config["num_key_value_heads"]
    split = [(queries, heads), (keys, kv_heads), (values, kv_heads)]
    queries, keys, values = (part.reshape(count, number, -1) for part, number in split)
    queries, keys = _rotated(queries, config["rope_theta"]), _rotated(keys, config["rope_theta"])
    keys, values = (np.repeat(part, heads // kv_heads, axis=1) for part in (keys, values))
    scores = np.einsum("qhd,khd->hqk", queries, keys) / np.sqrt(queries.shape[-1])
    scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", shares, values).reshape(count, -1)


def _rotated(values: Array, theta: float) -> Array:
    """Turn the pairs ``(i, i + d / 2)`` of each head by ``position * theta ** (-2 i / d)``."""
    half = values.shape[-1] // 2
    angles = np.arange(len(values))[:, None, None] * theta ** (-np.arange(half) / half)
    first, second = values[..., :half], values[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)
