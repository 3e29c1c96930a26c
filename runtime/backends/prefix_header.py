"""The head of a prefix file: which model and launch its KV state belongs to, and what it is the state of.

Format ``coresident-prefix`` is a safetensors file (https://github.com/huggingface/safetensors, "Format"): eight bytes
of little-endian length, that many bytes of JSON, then the tensors without gaps: ``tokens`` (int64), then
``layers.N.keys`` and ``layers.N.values``, each ``(kv_heads, tokens, head_dim)``. The fields are strings under
``__metadata__``. A head is written in one way only, so any other spelling of it is damage. ``checksum`` is the SHA-256
of the whole file with zeros in its own place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from ...actors.work import PrefixFile
from ..models.architecture import DecoderConfig, invalid

FORMAT = "coresident-prefix"
VERSION = "1"
BLANK = "0" * 64
LONGEST = 1 << 22
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_STORED = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
_NUMBER = re.compile(r"[0-9]{1,9}")


@attrs.frozen
class Geometry:
    """What a retained copy fits: the model's digest and the sizes and type of its keys and values."""

    digest: str
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str = "float32"

    @classmethod
    def of(cls, config: DecoderConfig, digest: str) -> Geometry:
        return cls(digest, config.layers, config.kv_heads, config.head_dim)


@attrs.frozen
class PrefixHeader:
    """Every field of a head. ``tokens`` counts them, ``token_hash`` is the SHA-256 of their little-endian int64 ids."""

    backend: str
    launch: str
    digest: str
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    identity: str
    tokens: int
    token_hash: str
    aligned: int
    chunk: int
    checksum: str = BLANK

    @classmethod
    def of(cls, file: PrefixFile, backend: str, geometry: Geometry) -> PrefixHeader:
        """The head that a file has to have, its checksum aside."""
        return cls(
            backend=backend,
            launch=file.launch,
            identity=file.identity,
            tokens=len(file.tokens),
            token_hash=token_hash(token_bytes(file.tokens)),
            aligned=file.aligned,
            chunk=file.chunk,
            **attrs.asdict(geometry),
        )

    @property
    def payload(self) -> int:
        """Bytes of the keys and values."""
        return 2 * self.layers * self._tensor_bytes

    @property
    def _tensor_bytes(self) -> int:
        return self.kv_heads * self.tokens * self.head_dim * ITEM_BYTES[self.dtype]

    def encode(self) -> bytes:
        """The head as it stands in the file, its length included."""
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            **{key: str(value) for key, value in attrs.asdict(self).items()},
        }
        table: dict[str, Any] = {"__metadata__": metadata}
        start = 8 * self.tokens
        table["tokens"] = {"dtype": "I64", "shape": [self.tokens], "data_offsets": [0, start]}
        shape = [self.kv_heads, self.tokens, self.head_dim]
        for layer in range(self.layers):
            for part in ("keys", "values"):
                end = start + self._tensor_bytes
                offsets = [start, end]
                table[f"layers.{layer}.{part}"] = {
                    "dtype": _STORED[self.dtype],
                    "shape": shape,
                    "data_offsets": offsets,
                }
                start = end
        text = json.dumps(table, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def check(self, wanted: Mapping[str, object], path: str) -> None:
        """Refuse a head whose fields are not the wanted ones. Raises ``ArtifactInvalid``, naming the first."""
        for field, value in wanted.items():
            found = getattr(self, field)
            if found != value:
                raise invalid(path, field, found, f"expected {value!r}{_REASONS.get(field, '')}")


_REASONS = {
    "launch": ": a prefix file is valid within one launch of the process only; restoring across launches is deferred",
    "digest": ", the loaded model's: the keys and values of another model mean nothing to it",
}


def token_bytes(tokens: tuple[int, ...]) -> bytes:
    """Token ids as the file has them."""
    return np.asarray(tokens, dtype="<i8").tobytes()


def token_hash(data: bytes) -> str:
    """SHA-256 of token ids."""
    return hashlib.sha256(data).hexdigest()


def decode_head(text: bytes, path: str) -> PrefixHeader:
    """A head from its JSON. Raises ``ArtifactInvalid`` for anything that ``encode`` would not have written."""
    try:
        table = json.loads(text.decode("ascii"))
        metadata = table["__metadata__"]
        strings = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise invalid(path, "header", type(error).__name__, f"not a prefix file: {error}") from None
    if not strings or metadata.get("format") != FORMAT:
        found = metadata.get("format") if isinstance(metadata, dict) else metadata
        raise invalid(path, "format", found, f"expected {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise invalid(path, "version", metadata.get("version"), f"expected {VERSION!r}, which this release reads")
    header = _structure(metadata, path)
    if len(table) != 2 + 2 * header.layers or header.encode()[8:] != text:
        raise invalid(
            path, "header", f"{len(table)} entries", "its tensors or its spelling are not what its fields ask"
        )
    return header


def _structure(metadata: Mapping[str, str], path: str) -> PrefixHeader:
    fields = attrs.fields_dict(PrefixHeader)
    for name in (*fields, *metadata):
        if name not in metadata or name not in (*fields, "format", "version"):
            raise invalid(path, name, metadata.get(name), f"expected exactly the fields {', '.join(fields)}")
    values: dict[str, Any] = {name: metadata[name] for name in fields}
    for name, field in fields.items():
        if field.type in (int, "int"):
            if not _NUMBER.fullmatch(values[name]):
                raise invalid(path, name, values[name], "expected a whole number")
            values[name] = int(values[name])
    header = PrefixHeader(**values)
    if header.dtype not in ITEM_BYTES:
        raise invalid(path, "dtype", header.dtype, f"known are {', '.join(ITEM_BYTES)}")
    if header.tokens < 1 or header.aligned > header.tokens or header.chunk < 1:
        counts = (header.tokens, header.aligned, header.chunk)
        raise invalid(path, "tokens, aligned, chunk", counts, "expected at least one token, and no more aligned ones")
    return header
