"""What to dispatch for one operation of the decoder: kernel, push constants and workgroups. Pure functions of sizes.

Buffers are bound whole, so one descriptor set serves every tile of a step: places and strides are push constants, in
floats. Where a kernel moves four floats at once, they and its widths must be multiples of 4. ``texel`` picks how hot
data is read: through texel buffers, which a CPU's driver gathers well, or through storage buffers. The arithmetic, and
so the bits, are the same, and never depend on how many tokens share a dispatch; the shaders say in which order each
result is added up.
"""

from __future__ import annotations

import struct

import attrs

from ....actors.errors import BackendFault
from .formats import BLOCKS, padded_rows
from .parameters import StepLayout

TOKENS = (1, 4, 8)
ROWS_PER_GROUP = {1: 128, 4: 96, 8: 96}
HALVES_PER_GROUP = {**ROWS_PER_GROUP, 1: 256}
"""Rows of a workgroup that reads texels, by tokens. A single token wants 2 KiB of neighbours: 128 codes, 256 halves."""


@attrs.frozen
class Dispatch:
    """One dispatch: ``groups`` are workgroups in x, y and z; ``push`` goes to the kernel as it is."""

    kernel: str
    push: bytes
    groups: tuple[int, int, int]


@attrs.frozen
class Matrix:
    """A packed matrix, or a piece of one: ``rows`` outputs, ``inputs`` wide, in a format of ``formats``."""

    format: str
    rows: int
    inputs: int

    @property
    def padded(self) -> int:
        """Rows in memory."""
        return padded_rows(self.rows)

    @property
    def blocks(self) -> int:
        """Blocks of inputs in a row."""
        return -(-self.inputs // BLOCKS[self.format])


def words(*values: int | float) -> bytes:
    """Push constants: integers as uint32, floats as float32."""
    return b"".join(struct.pack("<f" if isinstance(value, float) else "<I", value) for value in values)


def quads(*floats: int) -> tuple[int, ...]:
    """Places, strides or widths in floats as counts of four floats. Raises ``BackendFault`` where one is not."""
    for value in floats:
        if value % 4:
            raise BackendFault(f"a kernel that moves four floats at once was given {value}, not a multiple of 4")
    return tuple(value // 4 for value in floats)


def way(texel: bool) -> str:
    """The part of a kernel's name that says how it reads."""
    return "texel" if texel else "storage"


def groups(count: int, each: int) -> int:
    """Workgroups that cover ``count`` items, ``each`` at a time."""
    return -(-count // each)


def matmul(
    texel: bool, matrix: Matrix, tokens: int, x_at: int, x_stride: int, y_at: int, y_stride: int, add: bool = False
) -> Dispatch:
    """``y[t] (+)= W @ x[t]``; 1 or 4 rows of x are read, whichever holds ``tokens``, or a multiple of 8.

    Only ``tokens`` rows of y are written, and ``y_at`` may be any float. Columns of x that pad its inputs to a multiple
    of 8 must be zero. Sets: the matrix's parts; x and y.
    """
    held = next((count for count in TOKENS if tokens <= count), TOKENS[-1])
    sizes = matrix.rows, matrix.padded, matrix.blocks, tokens
    push = words(*sizes, *quads(x_at, x_stride), y_at, y_stride, int(add))
    each = (HALVES_PER_GROUP if matrix.format == "f16" else ROWS_PER_GROUP)[held] if texel else 32
    shape = (groups(tokens, held), groups(matrix.rows, each), 1)
    return Dispatch(f"matmul_{matrix.format}_{way(texel)}_{held}", push, shape)


def embed(
    matrix: Matrix, step: StepLayout, tokens: int, y_at: int, y_stride: int, first_row: int = 0, first: int = 0
) -> Dispatch:
    """The dequantized rows of the ids of tokens ``first``, ...; the matrix is the embedding from ``first_row`` on.

    Ids outside the piece write nothing. Sets: the parts, always as storage; parameters and y.
    """
    push = words(matrix.rows, matrix.padded, matrix.blocks, step.ids_at + first, first_row, *quads(y_at, y_stride))
    return Dispatch(f"embed_{matrix.format}", push, (groups(matrix.blocks, 32), tokens, 1))


def rms_norm(
    width: int, tokens: int, x_at: int, x_stride: int, y_at: int, y_stride: int, weight_at: int, eps: float
) -> Dispatch:
    """``x / sqrt(mean(x^2) + eps) * weight``, a row at a time; x and y may be one. Sets: vectors; x and y."""
    push = words(4 * quads(width)[0], *quads(x_at, x_stride, y_at, y_stride, weight_at), float(eps))
    return Dispatch("rms_norm", push, (tokens, 1, 1))


def swiglu(
    width: int, tokens: int, gate_at: int, gate_stride: int, up_at: int, up_stride: int, out_at: int, out_stride: int
) -> Dispatch:
    """``silu(gate) * up``; out may be one of the two. Set 1: gate, up and out."""
    push = words(*quads(width, gate_at, gate_stride, up_at, up_stride, out_at, out_stride))
    return Dispatch("swiglu", push, (groups(width // 4, 64), tokens, 1))
