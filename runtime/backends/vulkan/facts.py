"""What is known of a model before it is loaded, and in which form its matrices will be resident."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

import attrs
import numpy as np
from numpy.typing import NDArray

from ...models.architecture import invalid
from ...models.checkpoint import Checkpoint
from ...models.heads import resolve_heads
from ...models.locate import ModelSource
from ..facts import DecoderFacts, describe
from .formats import resident_format

LANES = 4
"""Values that kernels take at once."""


@attrs.frozen(eq=False)
class VulkanFacts(DecoderFacts):
    """``stored`` says how the file has each tensor; ``frequencies`` are radians per position, one per rotary pair.

    ``interleaved`` says that rotary pairs are neighbouring rows of q and k instead of the two halves of a head.
    """

    stored: Mapping[str, str]
    interleaved: bool
    frequencies: NDArray[np.float64]

    @classmethod
    def of(cls, source: ModelSource, checkpoint: Checkpoint) -> Self:
        config = checkpoint.config
        for name in ("hidden", "head_dim"):
            if getattr(config, name) % LANES:
                file = checkpoint.path or checkpoint.label
                raise invalid(file, name, getattr(config, name), f"this backend needs a multiple of {LANES}")
        heads = resolve_heads(source.heads, checkpoint.digest, config.hidden, config.vocabulary)
        stored = {name: tensor.stored for name, tensor in checkpoint.tensors.items()}
        matrices = [stored[name] for name, shape in config.tensor_shapes().items() if len(shape) > 1]
        description = describe(checkpoint, tuple(heads))
        label = f"{description.label}; {residence(matrices)}"
        frequencies = config.rope.frequencies(config.head_dim)
        if checkpoint.rope_factors is not None:
            frequencies = frequencies / checkpoint.rope_factors
        return cls(
            description=attrs.evolve(description, label=label),
            config=config,
            heads=heads,
            stored=stored,
            interleaved=checkpoint.interleaved,
            frequencies=frequencies,
        )


def residence(stored: Iterable[str]) -> str:
    """How matrices lie in memory, the commonest form first, such as ``Q4_1 kept quantized; Q6_K as float16``."""
    ways: dict[str, list[str]] = {}
    for kind, _ in Counter(stored).most_common():
        form = resident_format(kind)
        way = {"f16": "as float16", "f32": "as float32"}.get(form, "kept quantized")
        ways.setdefault(way, []).append(kind)
    return "; ".join(f"{' and '.join(kinds)} {way}" for way, kinds in ways.items())


def read_facts(source: ModelSource) -> VulkanFacts:
    """Read a model's metadata and heads, and hash its file.

    Raises:
        ArtifactInvalid: the file is damaged, or is no decoder that this backend can run.
    """
    return VulkanFacts.of(source, source.open())
