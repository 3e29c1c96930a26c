"""Matrices as kernels read them: random ones of every kind, and what their packed parts stand for."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
from coresident.runtime.backends.vulkan.formats import pack_rows, pack_values
from gguf import GGMLQuantizationType

QUANTIZED = {"Q8_0": 32, "Q4_0": 32, "Q4_1": 32, "Q4_K": 256}
"""Inputs of a block of the file, by GGML type."""

STORED = {"q8_0": "Q8_0", "q4_1": "Q4_1", "q4_k": "Q4_K"}
HALVES = {"Q8_0": 1, "Q4_0": 1, "Q4_1": 2, "Q4_K": 2}


def random_rows(stored: str, rows: int, blocks: int, seed: int) -> tuple[Any, int]:
    """Rows of blocks with any codes and small scales, and how many inputs they have."""
    _, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[stored]]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    halves = rng.uniform(-0.02, 0.02, (rows, blocks, HALVES[stored])).astype(np.float16)
    raw[:, :, : halves.shape[2] * 2] = halves.view(np.uint8)
    return raw.reshape(rows, -1), blocks * QUANTIZED[stored]


def stored_rows(form: str, rows: int, inputs: int) -> tuple[Any, Any]:
    """A random matrix that ``form`` is to hold: as a file has it, and its values."""
    if form in STORED:
        raw, _ = random_rows(STORED[form], rows, inputs // QUANTIZED[STORED[form]], rows)
        return raw, gguf.dequantize(raw, GGMLQuantizationType[STORED[form]])
    values = np.random.default_rng(rows).standard_normal((rows, inputs), np.float32)
    values = values.astype(np.float16 if form == "f16" else np.float32).astype(np.float32)
    return values, values


def packed(form: str, whole: int, inputs: int, rows: slice = slice(None)) -> dict[str, Any]:
    """Rows of the random matrix that has ``whole`` of them, packed."""
    raw, _ = stored_rows(form, whole, inputs)
    if form in STORED:
        return pack_rows(form, STORED[form], raw[rows], inputs, form)
    return pack_values(form, raw[rows], form)


def unpacked(form: str, found: dict[str, Any], rows: int, inputs: int) -> Any:
    """What packed parts stand for, by the layout that kernels rely on, with gguf's own dequantization."""
    if form in ("f32", "f16"):
        kind = np.float32 if form == "f32" else np.float16
        values = found["values"].view(kind).transpose(1, 0, 2)
        return values.reshape(len(values), -1)[:rows, :inputs].astype(np.float32)
    blocks = inputs // QUANTIZED[STORED[form]]
    codes = found["codes"].swapaxes(0, 1).reshape(found["codes"].shape[1], blocks, -1)
    scales = found["scales"].swapaxes(0, 1).reshape(len(codes), blocks, -1)
    raw = np.concatenate([scales, codes], axis=2).reshape(len(codes), -1)[:rows]
    return gguf.dequantize(raw, GGMLQuantizationType[STORED[form]])
