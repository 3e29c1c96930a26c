"""What a decoder of the Llama family is: sizes, variations, and the tensors that it must have.

The families differ in little: Qwen2 adds biases to the query, key and value projections, Qwen3 normalizes each query
and key head and sets the head size freely, and any of them may tie the output head to the embedding. File formats
translate their metadata into a :class:`DecoderConfig` and their tensor names into the names of
:meth:`DecoderConfig.tensor_shapes`.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.errors import ArtifactInvalid

ARCHITECTURES = ("llama", "qwen2", "qwen3")
ROPE_KINDS = ("none", "linear", "llama3")
LARGEST = 1 << 31


@attrs.frozen
class Rope:
    """Rotary position embedding: base ``theta`` and how its frequencies are scaled.

    ``linear`` divides every frequency by ``factor``. ``llama3`` divides only those whose wavelength exceeds
    ``original_context / low`` tokens and blends down to ``original_context / high`` (Llama 3.1 model card and code).
    """

    theta: float = 10000.0
    kind: str = "none"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192

    def frequencies(self, head_dim: int) -> NDArray[np.float64]:
        """Radians per position, shape ``(head_dim / 2,)``."""
        plain = self.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        if self.kind == "linear":
            return plain / self.factor
        if self.kind == "llama3":
            turns = self.original_context * plain / (2 * math.pi)
            blend = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
            return plain * (blend + (1.0 - blend) / self.factor)
        return plain


@attrs.frozen
class DecoderConfig:
    """Sizes of one decoder: ``mlp`` is the feed-forward width, ``heads`` query heads share ``kv_heads``."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    eps: float
    rope: Rope
    tied: bool
    context_limit: int
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of float32 keys and values of one position in all layers."""
        return 2 * self.layers * self.kv_width * 4

    def layer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors of one layer by name; matrices are ``(outputs, inputs)``."""
        shapes: dict[str, tuple[int, ...]] = {
            "attention_norm": (self.hidden,),
            "q": (self.q_width, self.hidden),
            "k": (self.kv_width, self.hidden),
            "v": (self.kv_width, self.hidden),
            "o": (self.hidden, self.q_width),
            "mlp_norm": (self.hidden,),
            "gate": (self.mlp, self.hidden),
            "up": (self.mlp, self.hidden),
            "down": (self.hidden, self.mlp),
        }
        if self.qkv_bias:
            shapes |= {"q_bias": (self.q_width,), "k_bias": (self.kv_width,), "v_bias": (self.kv_width,)}
        if self.qk_norm:
            shapes |= {"q_norm": (self.head_dim,), "k_norm": (self.head_dim,)}
        return shapes

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor by name (``layers.3.q``); matrices are ``(outputs, inputs)``."""
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocabulary, self.hidden)}
        layer = self.layer_shapes()
        for index in range(self.layers):
            shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
        shapes["final_norm"] = (self.hidden,)
        if not self.tied:
            shapes["output"] = (self.vocabulary, self.hidden)
        return shapes

    def parameters(self) -> int:
        """The number of weights."""
        layer = sum(math.prod(shape) for shape in self.layer_shapes().values())
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden
        return self.layers * layer + ends


def check_config(config: DecoderConfig, file: str) -> DecoderConfig:
    """Return ``config`` if its sizes make a decoder.

    Raises:
        ArtifactInvalid: a size is out of range or two of them contradict each other.
    """
    sizes = ("hidden", "layers", "heads", "kv_heads", "head_dim", "mlp", "vocabulary", "context_limit")
    for name in sizes:
        value = getattr(config, name)
        if not 0 < value < LARGEST:
            raise invalid(file, name, value, f"it must be from 1 to {LARGEST - 1}")
    if config.architecture not in ARCHITECTURES:
        raise invalid(file, "architecture", config.architecture, f"supported are {', '.join(ARCHITECTURES)}")
    if config.heads % config.kv_heads:
        raise invalid(file, "kv_heads", config.kv_heads, f"it must divide the {config.heads} query heads")
    if config.head_dim % 2:
        raise invalid(file, "head_dim", config.head_dim, "rotary embedding needs an even head size")
    if not (math.isfinite(config.eps) and config.eps >= 0):
        raise invalid(file, "eps", config.eps, "the norm's epsilon must be finite and not negative")
    check_rope(config.rope, file)
    return config


def check_rope(rope: Rope, file: str) -> None:
    """Refuse rotary settings that have no meaning or no implementation here."""
    if rope.kind not in ROPE_KINDS:
        raise invalid(file, "rope scaling", rope.kind, f"supported are {', '.join(ROPE_KINDS)}")
    for name in ("theta", "factor", "low", "high", "original_context"):
        value = getattr(rope, name)
        if not (math.isfinite(value) and value > 0):
            raise invalid(file, f"rope {name}", value, "it must be finite and positive")
    if rope.kind == "llama3" and rope.high <= rope.low:
        raise invalid(file, "rope high", rope.high, f"it must exceed the low factor {rope.low}")


def invalid(file: str, field: str, value: object, why: str) -> ArtifactInvalid:
    """The error for one field of a model file."""
    shown = repr(value)
    shown = shown if len(shown) <= 120 else shown[:117] + "..."
    return ArtifactInvalid(f"{file}: {field} is {shown}: {why}", file=file, field=field, value=value)
