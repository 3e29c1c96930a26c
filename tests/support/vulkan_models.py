"""Tiny models for Vulkan in every form that its weights have in memory, with values that float16 holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coresident.runtime.models.locate import ModelSource
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from support import tiny_models
from support.reference import HEADS

FORMS = (
    ("llama", "Q4_1"),
    ("qwen2", "Q8_0"),
    ("llama_llama3", "Q4_K"),
    ("qwen3", "F16"),
    ("qwen2", "folder"),
    ("qwen3", "folder"),
)
"""Families and how their matrices are stored: every family, every kept type, both kinds of files."""

WIDE = 256
"""The values of a Q4_K block, of which each row has a whole number."""


def written(folder: Path, family: str, form: str) -> ModelSource:
    """A model with two verbalizer heads."""
    path = folder / f"{family}-{form}"
    if form == "Q4_K":
        _write_wide(path, family)
    elif form == "folder":
        tiny_models.write_folder(path, family, weights=_halves(family))
    else:
        tiny_models.write_gguf(path, family, GGMLQuantizationType[form], weights=_halves(family))
    return ModelSource(str(path), HEADS)


def _halves(family: str) -> dict[str, np.ndarray]:
    """The family's weights as float16 rounds them, as float32: so a matrix that is kept as float16 is exact."""
    return {name: values.astype(np.float16).astype(np.float32) for name, values in tiny_models.tensors(family).items()}


def _write_wide(path: Path, family: str) -> None:
    """The ``gguf`` package can't make Q4_K blocks, so any do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_models, "HIDDEN", WIDE)
        patch.setattr(tiny_models, "MLP", WIDE)
        patch.setattr(tiny_models, "quantize", lambda values, kind: random_blocks(kind.name, *values.shape))
        tiny_models.write_gguf(path, family, GGMLQuantizationType.Q4_K, weights=_halves(family))


def random_blocks(kind: str, rows: int, inputs: int, scale: float = 2e-4) -> np.ndarray:
    """Rows of any codes, whose values are about 0 on average, as bytes ``(rows, bytes of a row)``."""
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    draw = np.random.default_rng(rows)
    raw = draw.integers(0, 256, (rows, inputs // values, size), dtype=np.uint8)
    scales = draw.uniform(scale / 2, scale, (rows, inputs // values, 1)) * [1, 7.5]
    raw[..., :4] = scales.astype(np.float16).view(np.uint8)
    return raw.reshape(rows, -1)
