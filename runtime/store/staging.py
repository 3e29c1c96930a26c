"""Copying into a part: bounded, hashed on the way, resumable; and publishing it when it is whole.

A part holds what has come so far. A later staging hashes it again and goes on behind it, so the digest covers every
byte, whoever wrote it. What is known to be wrong (other bytes, or more of them) is removed; what is merely unfinished
(the source ended or failed, the disk is full) stays, to go on from.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from types import TracebackType
from typing import Self

import attrs

from ...actors.errors import ArtifactInvalid
from .digests import CHUNK, Reader
from .faults import StoreFault, invalid
from .folders import File, Folder
from .locks import FileLock

PART = ".part"
SEALED = 0o444

Progress = Callable[[int, int], None]
"""Called with the bytes that are hashed and in place, and the bytes there will be. What it raises ends the staging."""


@attrs.frozen
class Staged:
    """One artifact that is in the store, whole. ``published`` is false when it was there already.

    ``copied`` bytes came from the reader now, ``resumed`` bytes from an earlier attempt.
    """

    digest: str
    size: int
    copied: int = 0
    resumed: int = 0
    published: bool = False


class Part:
    """The bytes staged so far of artifact ``digest``, to be ``size`` in all; locked until the block ends."""

    def __init__(self, staging: Folder, digest: str, size: int, timeout_s: float | None) -> None:
        self.staging, self.digest, self.size = staging, digest, size
        self.name = digest + PART
        self._lock = _alone(staging, self.name, timeout_s)
        self._named = True

    @property
    def _file(self) -> File:
        return self._lock.file

    def fill(self, reader: Reader, progress: Progress | None) -> Staged:
        """Copy what is missing from ``reader``, never more than ``size`` bytes; nothing is published yet.

        A reader that can seek is moved past what is there already; any other one is read from its beginning.
        Raises ``ArtifactInvalid`` (``short``, ``long``, ``mismatch``), ``StoreFault``, or what the reader raises.
        """
        done = resumed = self._resume(reader)
        self._demand_room(self.size - done)
        hasher = self._hash_resumed(resumed, progress)
        while data := reader.read(min(CHUNK, self.size - done + 1)):
            if done + len(data) > self.size:
                raise self._wrong("long", f"the source has more than the {self.size} bytes that were declared")
            self._file.write(data)
            hasher.update(data)
            done += len(data)
            if progress is not None:
                progress(done, self.size)
        if done < self.size:
            raise self._short(done)
        if hasher.hexdigest() != self.digest:
            raise self._mismatch(hasher.hexdigest(), resumed)
        return Staged(self.digest, self.size, done - resumed, resumed, published=True)

    def publish(self, blobs: Folder) -> None:
        """Make the part the artifact: both synced before, the folders' new names after.

        Raises ``StoreFault``. The artifact is then either not there or whole, and staging again ends well.
        """
        try:
            self._file.settle()
        except StoreFault as fault:
            # The system may have dropped what it could not write, and may not say so again: these bytes can't be kept.
            self._discard_after(fault)
            raise
        self.staging.sync()
        self.staging.replace(self.name, blobs, self.digest)
        self._named = False
        self._file.chmod(SEALED)
        blobs.sync()
        self.staging.sync()

    def discard(self) -> None:
        """Remove what was staged."""
        if self._named:
            self.staging.unlink(self.name)
            # From now on the name may be another process's.
            self._named = False

    def _resume(self, reader: Reader) -> int:
        """How many bytes of the part to go on from: all of them, or none when the reader has to begin again."""
        have = self._file.size
        seekable = getattr(reader, "seekable", None)
        if have > self.size or (have and not (seekable and seekable())):
            self._file.truncate(0)
            return 0
        if have:
            reader.seek(have, os.SEEK_CUR)  # type: ignore[attr-defined]
        return have

    def _demand_room(self, wanted: int) -> None:
        """Refuse before anything is written what the disk has no room for."""
        free = self.staging.free_bytes()
        if wanted > free:
            raise StoreFault(
                f"{self.staging.path}: {wanted} bytes of {self.digest} are still to be staged, {free} bytes are free, "
                f"{wanted - free} are missing: free some space; staging goes on where it stopped",
                operation="write",
                path=self.staging.path,
                errno=errno.ENOSPC,
                asked=wanted,
                available=free,
            )

    def _hash_resumed(self, resumed: int, progress: Progress | None) -> hashlib._Hash:
        hasher = hashlib.sha256()
        done = 0
        while done < resumed and (data := self._file.read(min(CHUNK, resumed - done))):
            hasher.update(data)
            done += len(data)
            if progress is not None:
                progress(done, self.size)
        return hasher

    def _wrong(self, fault: str, message: str, **details: object) -> ArtifactInvalid:
        """The error for bytes that can't become the artifact, which are removed."""
        error = invalid(self._file.path, fault, f"{message}; nothing was published", declared=self.size, **details)
        self._discard_after(error)
        return error

    def _mismatch(self, found: str, resumed: int) -> ArtifactInvalid:
        blame = f", {resumed} of them from an earlier attempt" if resumed else ""
        message = (
            f"the {self.size} bytes{blame} have the SHA-256 {found}, not {self.digest}: stage again, from a source "
            "with the right bytes"
        )
        return self._wrong("mismatch", message, expected=self.digest, actual=found, resumed=resumed)

    def _short(self, done: int) -> ArtifactInvalid:
        message = (
            f"the source ended {self.size - done} bytes before the {self.size} bytes that were declared: stage again "
            "to go on from here; nothing was published"
        )
        return invalid(self._file.path, "short", message, declared=self.size, actual=done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and self._named:
            self._discard_after(error, only_empty=True)
        self._lock.__exit__(kind, error, _)

    def _discard_after(self, error: BaseException, only_empty: bool = False) -> None:
        """Remove what was staged because of ``error``, which stays the one that is told."""
        try:
            if not (only_empty and self._file.size):
                self.discard()
        except StoreFault as besides:
            error.add_note(f"besides: {besides}")


def _alone(staging: Folder, name: str, timeout_s: float | None) -> FileLock:
    """The lock on a part that has no other name.

    One that has is something else as well (a published artifact after a loss of power, or a link somebody planted) and
    must not be written to: it loses this name, and a new part takes its place.
    """
    while True:
        lock = FileLock.take(staging, name, timeout_s=timeout_s)
        try:
            if lock.file.status().st_nlink <= 1:
                return lock
            staging.unlink(name)
        except BaseException as error:
            lock.__exit__(type(error), error, None)
            raise
        lock.release()
