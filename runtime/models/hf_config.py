"""``config.json`` of a Hugging Face folder as a :class:`DecoderConfig` (keys: transformers' configuration classes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from .architecture import ARCHITECTURES, DecoderConfig, Rope, check_config, invalid

T = TypeVar("T", int, float, str, bool)
Settings = Mapping[str, Any]


def read_config(settings: Settings, file: str) -> DecoderConfig:
    """The decoder's sizes.

    Raises:
        ArtifactInvalid: a key is missing, has the wrong type, or asks for something that is not supported.
    """
    architecture = field(settings, "model_type", str, file)
    if architecture not in ARCHITECTURES:
        raise invalid(file, "model_type", architecture, f"supported are {', '.join(ARCHITECTURES)}")
    _refuse_unsupported(settings, architecture, file)
    hidden = field(settings, "hidden_size", int, file)
    heads = field(settings, "num_attention_heads", int, file)
    if heads < 1:
        raise invalid(file, "num_attention_heads", heads, "it must be positive")
    head_dim = settings.get("head_dim")
    config = DecoderConfig(
        architecture=architecture,
        hidden=hidden,
        layers=field(settings, "num_hidden_layers", int, file),
        heads=heads,
        kv_heads=field(settings, "num_key_value_heads", int, file, heads),
        head_dim=hidden // heads if head_dim is None else field(settings, "head_dim", int, file),
        mlp=field(settings, "intermediate_size", int, file),
        vocabulary=field(settings, "vocab_size", int, file),
        eps=field(settings, "rms_norm_eps", float, file, 1e-6),
        rope=_rope(settings, file),
        tied=field(settings, "tie_word_embeddings", bool, file, False),
        context_limit=field(settings, "max_position_embeddings", int, file),
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
    )
    if config.layers > 4096:
        raise invalid(file, "num_hidden_layers", config.layers, "at most 4096 are accepted")
    return check_config(config, file)


def _refuse_unsupported(settings: Settings, architecture: str, file: str) -> None:
    activation = field(settings, "hidden_act", str, file, "silu")
    if activation != "silu":
        raise invalid(file, "hidden_act", activation, "only silu is supported")
    biases = ("attention_bias", "mlp_bias") if architecture != "qwen2" else ("mlp_bias",)
    for key in (*biases, "use_sliding_window"):
        if settings.get(key):
            raise invalid(file, key, settings[key], f"it is not supported for {architecture}")
    if "quantization_config" in settings:
        raise invalid(file, "quantization_config", settings["quantization_config"], "only plain weights are read")


def _rope(settings: Settings, file: str) -> Rope:
    """Rotary settings: ``rope_parameters`` (transformers 5) or ``rope_theta`` with ``rope_scaling`` (before)."""
    scaling = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise invalid(file, "rope_scaling", scaling, "it must be an object")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    theta = field({**settings, **scaling}, "rope_theta", float, file, 10000.0)
    if kind == "default":
        return Rope(theta=theta)
    if kind == "linear":
        return Rope(theta=theta, kind=kind, factor=field(scaling, "factor", float, file))
    if kind == "llama3":
        return Rope(
            theta=theta,
            kind=kind,
            factor=field(scaling, "factor", float, file),
            low=field(scaling, "low_freq_factor", float, file),
            high=field(scaling, "high_freq_factor", float, file),
            original_context=field(scaling, "original_max_position_embeddings", int, file),
        )
    raise invalid(file, "rope_type", kind, "supported are default, linear, llama3")


def field(settings: Settings, key: str, kind: type[T], file: str, default: T | None = None) -> T:
    """A value of the right type; floats accept integers, and nothing else is converted."""
    value = settings.get(key, default)
    if value is None:
        raise invalid(file, key, "missing", f"a {kind.__name__} is needed")
    if kind is float and type(value) is int:
        return kind(value)
    if type(value) is not kind:
        raise invalid(file, key, value, f"it must be a {kind.__name__}")
    return value
