"""Files that a load may only use when they are what a manifest says: their size and SHA-256, read to the last byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterable

import attrs

from ...actors.errors import ArtifactInvalid
from ..backends.contract import Segment

SEGMENT_BYTES = 8 << 20


@attrs.frozen
class FileClaim:
    """A file that a load reads: absolute path, SHA-256 in hexadecimal, size in bytes."""

    path: str
    digest: str
    size: int


def verified(claims: Iterable[FileClaim], segments: Generator[Segment, None, None]) -> Generator[Segment, None, None]:
    """The segments of a load behind those of the verification of its files.

    Raises:
        ArtifactInvalid: a file can't be read, or is not what is claimed; nothing was loaded.
    """
    try:
        for claim in claims:
            yield from _verify(claim)
        yield from segments
    finally:
        segments.close()


def _verify(claim: FileClaim) -> Generator[Segment, None, None]:
    try:
        with open(claim.path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != claim.size:
                raise _differs(claim, "size", claim.size, size)
            digest = hashlib.sha256()
            while part := stream.read(SEGMENT_BYTES):
                digest.update(part)
                yield Segment()
    except OSError as error:
        raise ArtifactInvalid(
            f"{claim.path}: can't be read ({error}): repair the model", file=claim.path, field="file"
        ) from error
    if digest.hexdigest() != claim.digest:
        raise _differs(claim, "digest", claim.digest, digest.hexdigest())


def _differs(claim: FileClaim, field: str, claimed: object, found: object) -> ArtifactInvalid:
    return ArtifactInvalid(
        f"{claim.path}: its {field} is {found}, its manifest says {claimed}: repair the model",
        file=claim.path,
        field=field,
        value=found,
    )
