"""SHA-256 digests: their shape, checked before any path is made of one, and their computation in one pass."""

from __future__ import annotations

import hashlib
import re
from typing import Protocol

from ...actors.errors import ArtifactInvalid

CHUNK = 1 << 20
"""Bytes read at a time; nothing in this package holds more of a file."""

DIGEST = re.compile(r"[0-9a-f]{64}")
SHOWN = 80


class Reader(Protocol):
    """What bytes are read from: ``read(n)`` gives at most ``n`` bytes, and none at the end."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        ...


def is_digest(text: object) -> bool:
    """Whether this is exactly 64 lower-case hexadecimal digits, the only shape a digest has."""
    return isinstance(text, str) and DIGEST.fullmatch(text) is not None


def check_digest(text: object) -> str:
    """The same text, when it is a digest; ``ArtifactInvalid`` (fault ``digest``) otherwise."""
    if isinstance(text, str) and is_digest(text):
        return text
    shown = repr(text)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    raise ArtifactInvalid(
        f"digest {shown} is not a SHA-256 digest: give exactly 64 lower-case hexadecimal digits (0-9, a-f)",
        field="digest",
        value=shown,
        fault="digest",
    )


def sha256_of(reader: Reader) -> str:
    """The SHA-256 of everything a reader gives, as 64 lower-case hexadecimal digits; memory stays at 1 MiB."""
    hasher = hashlib.sha256()
    while data := reader.read(CHUNK):
        hasher.update(data)
    return hasher.hexdigest()
