"""How matrices lie on a device: resident formats, and packing into them from a file's own blocks or from floats.

A lane of a kernel is an output row, so every part of a matrix is ``[block of inputs][row][item]``: neighbouring rows
are neighbours in memory. Rows are padded to a multiple of 8, the inputs of ``f32`` and ``f16`` too, with zeros.
The quantized formats keep the bytes of the file's blocks, in another order: what they dequantize to is what the
package ``gguf`` makes of them, bit for bit (source of the blocks: ggml's ``ggml-common.h``).
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import ArtifactInvalid

Bytes = NDArray[np.uint8]

BLOCKS = {"f32": 8, "f16": 8, "q8_0": 32, "q4_1": 32, "q4_k": 32}
"""Inputs that a kernel takes at a time, by resident format."""

ROWS = 8
STORED = {"F32": "f32", "F16": "f16", "Q8_0": "q8_0", "Q4_0": "q4_1", "Q4_1": "q4_1", "Q4_K": "q4_k"}


@attrs.frozen
class Part:
    """One buffer of a matrix: ``shape`` is (blocks, padded rows, bytes of an item); an item is read in texels."""

    name: str
    shape: tuple[int, int, int]
    texel_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of the part."""
        blocks, rows, item = self.shape
        return blocks * rows * item


def resident_format(stored: str) -> str:
    """The resident format of a GGML type; types that no kernel unpacks become ``f16``."""
    return STORED.get(stored, "f16")


def padded_rows(rows: int) -> int:
    """Rows of a matrix in memory."""
    return -(-rows // ROWS) * ROWS


def parts(form: str, rows: int, inputs: int) -> tuple[Part, ...]:
    """The buffers of a matrix, in the order in which kernels bind them."""
    height = padded_rows(rows)
    if form in ("f32", "f16"):
        item = 16 if form == "f32" else 8
        return (Part("values", (2 * -(-inputs // BLOCKS[form]), height, item), 16),)
    if form == "q4_k":
        return Part("codes", (inputs // 32, height, 16), 16), Part("scales", (inputs // 256, height, 16), 16)
    codes, scale = (inputs // 16, 2) if form == "q8_0" else (inputs // 32, 4)
    return Part("codes", (codes, height, 16), 16), Part("scales", (inputs // 32, height, scale), scale)


def pack_values(form: str, values: NDArray[np.float32], where: str) -> dict[str, Bytes]:
    """Rows of float32 ``(rows, inputs)`` as ``f32`` or ``f16``, by part; ``where`` names them in errors.

    Raises:
        ArtifactInvalid: a value that is outside float16.
    """
    rows, inputs = values.shape
    (part,) = parts(form, rows, inputs)
    padded = np.zeros((part.shape[1], part.shape[0] * 4), np.float32 if form == "f32" else np.float16)
    with np.errstate(over="ignore"):
        padded[:rows, :inputs] = values
    if form == "f16" and not np.isfinite(padded).all():
        row, column = np.argwhere(~np.isfinite(padded))[0].tolist()
        raise _invalid(where, float(values[row, column]), f"row {row}, column {column} of the rows read")
    return {part.name: _by_block(padded.view(np.uint8), part)}


def pack_rows(form: str, stored: str, raw: Bytes, inputs: int, where: str) -> dict[str, Bytes]:
    """Rows of a file's blocks of the GGML type ``stored``, uint8 ``(rows, bytes of a row)``, by part.

    Raises:
        ArtifactInvalid: a Q4_0 scale that is too large for eight times itself to be a float16.
    """
    header, codes = _split(stored, raw)
    if stored == "Q4_0":
        header = _with_minimum(header, where)
    own = parts(form, len(raw), inputs)
    joined = {"codes": codes.reshape(len(raw), -1), "scales": header.reshape(len(raw), -1)}
    return {part.name: _by_block(_padded(joined[part.name], part), part) for part in own}


def _split(stored: str, raw: Bytes) -> tuple[Bytes, Bytes]:
    """A block's scales and its codes, ``(rows, blocks, bytes)``."""
    size, header = {"Q8_0": (34, 2), "Q4_0": (18, 2), "Q4_1": (20, 4), "Q4_K": (144, 16)}[stored]
    blocks = np.ascontiguousarray(raw).reshape(len(raw), -1, size)
    return blocks[:, :, :header], blocks[:, :, header:]


def _with_minimum(scales: Bytes, where: str) -> Bytes:
    """Q4_0's ``d * (code - 8)`` as ``d * code + m``: the pairs ``(d, -8 d)``, which are exact."""
    halves = np.ascontiguousarray(scales).view(np.float16)
    with np.errstate(over="ignore"):
        pairs = np.concatenate([halves, np.float16(-8) * halves], axis=2)
    if not np.isfinite(pairs).all():
        bad = halves[~np.isfinite(pairs[:, :, 1:])][0]
        raise _invalid(where, float(bad), "the scale of a Q4_0 block, which is kept eight times too")
    return pairs.view(np.uint8)


def _padded(joined: Bytes, part: Part) -> Bytes:
    padded = np.zeros((part.shape[1], joined.shape[1]), np.uint8)
    padded[: len(joined)] = joined
    return padded


def _by_block(rows: Bytes, part: Part) -> Bytes:
    """``(rows, bytes)`` as the part's ``(blocks, rows, item)``, contiguous."""
    blocks, height, item = part.shape
    return np.ascontiguousarray(rows.reshape(height, blocks, item).swapaxes(0, 1))


def _invalid(where: str, value: float, what: str) -> ArtifactInvalid:
    return ArtifactInvalid(
        f"{where} has the value {value!r} ({what}), which is outside the range of float16, +-65504, that the vulkan "
        "backend keeps this tensor in: use a file with smaller values, or one stored as F32",
        file=where,
        field="value",
        value=value,
    )
