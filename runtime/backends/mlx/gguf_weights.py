"""Quantized GGUF blocks as MLX's packed weights, scales and biases, without a round trip through floats.

MLX's affine quantization keeps, for a group of values of a row, ``value = scale * code + bias`` with unsigned codes
packed into 32-bit words, low bits first (``mx.quantize``). ggml's blocks of 32 values are of the same kind:

====== ==================== ========= ==========
type   value                scale     bias
====== ==================== ========= ==========
Q4_0   d * (q - 8)          d         -8 d
Q4_1   d * q + m            d         m
Q8_0   d * q, q signed      d         -128 d
Q4_K   d * sc * q - dm * mn d * sc    -dm * mn
====== ==================== ========= ==========

(``ggml-quants.c`` and the ``gguf`` package's ``quants.py`` have the layouts.) The codes are kept bit by bit; scales
are products of halves, and are exact in float32. The other types have groups or widths that MLX does not have, and
are expanded.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

GROUP = 32
SUPER = 256
BITS = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8, "Q4_K": 4}
BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34, "Q4_K": 144}


@attrs.frozen(eq=False)
class Packed:
    """Rows of a matrix: ``weight`` uint32 ``(rows, inputs * bits / 32)``, ``scales`` and ``biases`` float32
    ``(rows, inputs / 32)``.
    """

    weight: NDArray[np.uint32]
    scales: Floats
    biases: Floats


def pack(raw: Bytes, kind: str) -> Packed:
    """Repack rows of ``raw`` blocks, uint8 ``(rows, bytes of a row)``, of a type in ``BITS``."""
    rows = len(raw)
    blocks = raw.reshape(rows, -1, BLOCK_BYTES[kind])
    codes, scales, biases = _UNPACK[kind](blocks)
    words = np.ascontiguousarray(codes).view("<u4").reshape(rows, -1)
    return Packed(words, scales.reshape(rows, -1), biases.reshape(rows, -1))


def _half(raw: Bytes) -> Floats:
    """Little-endian halves of the last axis, as float32."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _nibbles(raw: Bytes) -> Bytes:
    """Blocks hold value ``i`` in a low and value ``i + n`` in a high nibble; MLX wants neighbours in one byte."""
    low, high = raw & 0x0F, raw >> 4
    values = np.concatenate((low, high), axis=-1)
    packed: Bytes = values[..., 0::2] | values[..., 1::2] << 4
    return packed


Unpacked = tuple[Bytes, Floats, Floats]


def _q4_0(blocks: Bytes) -> Unpacked:
    scales = _half(blocks[..., :2])
    return _nibbles(blocks[..., 2:]), scales, -8 * scales


def _q4_1(blocks: Bytes) -> Unpacked:
    return _nibbles(blocks[..., 4:]), _half(blocks[..., :2]), _half(blocks[..., 2:4])


def _q8_0(blocks: Bytes) -> Unpacked:
    scales = _half(blocks[..., :2])
    return np.bitwise_xor(blocks[..., 2:], np.uint8(0x80)), scales, -128 * scales


def _q4_k(blocks: Bytes) -> Unpacked:
    """Super-blocks of 256 values: two halves, twelve bytes of 6-bit scales and minima, then four runs of 64 values."""
    whole, least = _half(blocks[..., :2]), _half(blocks[..., 2:4])
    scales, minima = _six_bits(blocks[..., 4:16])
    codes = _nibbles(blocks[..., 16:].reshape(*blocks.shape[:-1], 4, GROUP))
    return codes, whole * scales, -(least * minima)


def _six_bits(raw: Bytes) -> tuple[Floats, Floats]:
    """Eight scales and eight minima from twelve bytes."""
    first, second, rest = raw[..., 0:4], raw[..., 4:8], raw[..., 8:12]
    scales = np.concatenate((first & 0x3F, (rest & 0x0F) | (first >> 2) & 0x30), axis=-1)
    minima = np.concatenate((second & 0x3F, (rest >> 4) | (second >> 2) & 0x30), axis=-1)
    return scales.astype(np.float32), minima.astype(np.float32)


_UNPACK: dict[str, Callable[[Bytes], Unpacked]] = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0, "Q4_K": _q4_k}
