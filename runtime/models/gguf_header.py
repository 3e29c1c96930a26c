"""A bounded reader of GGUF headers (format: ggml's docs/gguf.md, versions 2 and 3, little endian).

Every length in the file is checked against the bytes that are left before anything is allocated for it, so a
truncated or hostile file costs an error and no memory. (The ``gguf`` package's own reader trusts the lengths, and
takes seconds where this takes a fraction of one; its tables of block sizes and its dequantization are used.)
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ...actors.errors import ArtifactInvalid
from .architecture import invalid

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
MAX_ITEMS = 1 << 22
MAX_DIMENSIONS = 4


@attrs.frozen
class TensorInfo:
    """Where one tensor lies: ``shape`` with the slowest axis first, ``offset`` and ``size`` in bytes of the file."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    size: int


@attrs.frozen
class GGUFHeader:
    """Metadata by key (scalars, strings, or lists of them) and tensors by name."""

    file: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]


class _Cursor:
    """Reads values forwards from a mapped file, never past its end."""

    def __init__(self, data: mmap.mmap, file: str) -> None:
        self.data, self.file, self.at = data, file, 0

    def need(self, size: int, field: str) -> None:
        left = len(self.data) - self.at
        if size > left:
            raise invalid(self.file, f"{field} (at byte {self.at})", size, f"the file has only {left} bytes left there")

    def scalar(self, form: str, field: str) -> Any:
        size = struct.calcsize(form)
        self.need(size, f"size of {field}")
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += size
        return value

    def text(self, field: str) -> str:
        length = self.scalar("<Q", f"length of {field}")
        self.need(length, f"length of {field}")
        raw = self.data[self.at : self.at + length]
        self.at += length
        # Vocabulary entries of some files are not whole UTF-8; they must not keep a model from loading.
        return raw.decode("utf-8", errors="surrogateescape")

    def count(self, smallest: int, field: str) -> int:
        """A number of things of at least ``smallest`` bytes each, which must fit what is left."""
        count: int = self.scalar("<Q", field)
        if count > MAX_ITEMS:
            raise invalid(self.file, field, count, f"at most {MAX_ITEMS} are accepted")
        self.need(count * smallest, f"bytes for {field} {count}")
        return count

    def value(self, kind: int, field: str) -> Any:
        if kind == STRING:
            return self.text(field)
        if kind == ARRAY:
            return self.array(field)
        if kind not in SCALARS:
            raise invalid(self.file, f"type of {field}", kind, "GGUF has value types 0 to 12")
        value = self.scalar(SCALARS[kind], field)
        return bool(value) if kind == BOOL else value

    def array(self, field: str) -> list[Any]:
        kind = self.scalar("<I", f"element type of {field}")
        if kind == STRING:
            return [self.text(field) for _ in range(self.count(8, f"count of {field}"))]
        if kind not in SCALARS:
            raise invalid(
                self.file, f"element type of {field}", kind, "arrays of strings, numbers and booleans are read"
            )
        dtype = np.dtype(SCALARS[kind] if kind != BOOL else "?")
        count = self.count(dtype.itemsize, f"count of {field}")
        values: list[Any] = np.frombuffer(self.data, dtype, count, self.at).tolist()
        self.at += count * dtype.itemsize
        return values


def read_header(path: Path) -> GGUFHeader:
    """Read a GGUF file's header and check that every tensor lies inside the file.

    Raises:
        ArtifactInvalid: naming file, field and value of whatever is wrong.
    """
    file = str(path)
    try:
        with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(_Cursor(data, file))
    except (OSError, ValueError) as error:
        raise ArtifactInvalid(f"{file}: cannot be read: {error}", file=file, field="file", value=str(error)) from error


def _parse(cursor: _Cursor) -> GGUFHeader:
    cursor.need(24, "header")
    magic = cursor.data[:4]
    if magic != MAGIC:
        raise invalid(cursor.file, "magic", magic, f"a GGUF file begins with {MAGIC!r}")
    cursor.at = 4
    version = cursor.scalar("<I", "version")
    if version not in VERSIONS:
        raise invalid(cursor.file, "version", version, f"little-endian GGUF versions {VERSIONS} are read")
    tensor_count = cursor.count(32, "tensor count")
    metadata: dict[str, Any] = {}
    for number in range(cursor.count(13, "metadata count")):
        key = cursor.text(f"metadata key {number}")
        if key in metadata:
            raise invalid(cursor.file, "metadata key", key, "it occurs twice")
        metadata[key] = cursor.value(cursor.scalar("<I", f"type of {key}"), key)
    entries = [_tensor_entry(cursor, number) for number in range(tensor_count)]
    return GGUFHeader(cursor.file, metadata, _place(cursor, metadata, entries))


def _tensor_entry(cursor: _Cursor, number: int) -> TensorInfo:
    """One entry of the tensor list; ``offset`` is still relative to the data section."""
    name = cursor.text(f"name of tensor {number}")
    dimensions = cursor.scalar("<I", f"dimensions of {name}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise invalid(cursor.file, f"dimensions of {name}", dimensions, f"1 to {MAX_DIMENSIONS} are possible")
    sizes = tuple(cursor.scalar("<Q", f"sizes of {name}") for _ in range(dimensions))
    number_of_kind = cursor.scalar("<I", f"type of {name}")
    try:
        kind = GGMLQuantizationType(number_of_kind)
    except ValueError:
        raise invalid(cursor.file, f"type of {name}", number_of_kind, "no such quantization type is known") from None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if sizes[0] % block:
        raise invalid(cursor.file, f"row length of {name}", sizes[0], f"{kind.name} packs {block} values in a block")
    offset = cursor.scalar("<Q", f"offset of {name}")
    return TensorInfo(name, tuple(reversed(sizes)), kind, offset, math.prod(sizes) // block * block_bytes)


def _place(cursor: _Cursor, metadata: Mapping[str, Any], entries: list[TensorInfo]) -> dict[str, TensorInfo]:
    """Turn relative offsets into absolute ones that are checked against the file's size."""
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise invalid(cursor.file, "general.alignment", alignment, "it must be a power of two")
    base = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in tensors:
            raise invalid(cursor.file, "tensor name", entry.name, "it occurs twice")
        if entry.offset % alignment:
            raise invalid(cursor.file, f"offset of {entry.name}", entry.offset, f"it must be a multiple of {alignment}")
        end, size = base + entry.offset + entry.size, len(cursor.data)
        if end > size:
            why = f"its {entry.size} bytes would end at {end}, but the file has {size}: it is truncated or damaged"
            raise invalid(cursor.file, f"offset of {entry.name}", entry.offset, why)
        tensors[entry.name] = attrs.evolve(entry, offset=base + entry.offset)
    return tensors
