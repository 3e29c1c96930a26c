"""Artifacts: files named by the SHA-256 of their bytes, staged whole or not at all.

``blobs/<digest>`` holds what is published, ``staging/<digest>.part`` what has come so far, locked by whoever stages it
(see :mod:`.staging`). Rule 1: a name appears in ``blobs`` only after its bytes matched the digest and the declared
size and were synced. Rule 2: bytes that don't match are removed. Rule 3: what is there already is verified, not
believed, and replaced when it is damaged. Rule 4: nothing is reached through a link.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import ExitStack
from pathlib import Path

import attrs

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .digests import CHUNK, Reader, check_digest, is_digest, sha256_of
from .faults import StoreFault, invalid, missing
from .folders import File, Folder, child_or_none
from .locks import FileLock
from .staging import PART, Part, Progress, Staged

BLOBS, STAGING = "blobs", "staging"
_IN_THE_WAY = ("symlink", "not a file", "not a folder")
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say something about this process or machine, and nothing about a file."""


@attrs.frozen
class Artifact:
    """A published artifact: its digest, and its bytes as the file system counts them (nothing is verified)."""

    digest: str
    size: int


@attrs.frozen
class Partial:
    """An unfinished staging: bytes so far, and whether some process is at it now."""

    digest: str
    size: int
    live: bool


class Artifacts:
    """The artifacts of the store in folder ``root``."""

    def __init__(self, root: Folder) -> None:
        self.root = root

    def stage(
        self,
        reader: Reader,
        digest: str,
        size: int,
        progress: Progress | None = None,
        timeout_s: float | None = None,
    ) -> Staged:
        """Copy exactly ``size`` bytes from ``reader`` into the store, when they have this digest.

        Goes on from an earlier attempt. Where another process stages the same artifact this waits for it, at most
        ``timeout_s`` seconds (``None``: as long as it takes). An artifact that is there and whole is not copied again.
        Raises ``ArtifactInvalid`` (``digest``, ``short``, ``long``, ``mismatch``, ``symlink``), ``StoreFault``,
        ``StoreBusy``, or what the reader or ``progress`` raises.
        """
        check_digest(digest)
        if not isinstance(size, int) or size < 0:
            raise InvalidRequest(f"size {size!r} of {digest} is no number of bytes: give an integer of 0 or more")
        if self._intact(digest, size, progress):
            return Staged(digest, size)
        with (
            self.root.child(STAGING, create=True) as staging,
            self.root.child(BLOBS, create=True) as blobs,
            Part(staging, digest, size, timeout_s) as part,
        ):
            if self._intact(digest, size, progress):
                part.discard()
                return Staged(digest, size)
            staged = part.fill(reader, progress)
            part.publish(blobs)
        return staged

    def stage_file(
        self,
        path: Path | str,
        digest: str | None = None,
        size: int | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
    ) -> Staged:
        """Stage a file. Without ``digest`` and ``size`` they are those the file has now, for which it is read twice.

        Raises what :meth:`stage` raises, and ``ArtifactInvalid`` that names ``path`` when the file is missing,
        unreadable, no file, or not of the declared size.
        """
        if digest is not None:
            check_digest(digest)
        with _source(self.root, os.fspath(path)) as source:
            actual = source.size
            if size is not None and actual != size:
                fault = "short" if actual < size else "long"
                message = f"the file has {actual} bytes, {size} were declared: give the file that was meant"
                raise invalid(source.path, fault, message, declared=size, actual=actual)
            if digest is None:
                digest = sha256_of(source)
                source.seek(0)
            return self.stage(source, digest, actual, progress, timeout_s)

    def has(self, digest: str) -> bool:
        """Whether a file has this artifact's name. Its bytes are not looked at: see :meth:`verify`."""
        check_digest(digest)
        with child_or_none(self.root, BLOBS) as blobs:
            entry = None if blobs is None else blobs.entry(digest)
        return entry is not None and stat.S_ISREG(entry.st_mode)

    def verify(self, digest: str, size: int | None = None, progress: Progress | None = None) -> int:
        """Read every byte of an artifact and check digest and size; its size.

        Raises ``ArtifactInvalid`` with the true fault: ``missing``, ``unreadable``, ``short``, ``long``, ``mismatch``,
        or what is in its place (``symlink``, ``not a file``, ``not a folder``).
        """
        check_digest(digest)
        try:
            return self._verify(digest, size, progress)
        except StoreFault as fault:
            if fault.details["errno"] in _OURS:
                raise
            path = os.path.join(self.root.path, BLOBS, digest)
            raise invalid(path, "unreadable", f"it is there and can't be read: {fault}") from fault

    def open(self, digest: str) -> int:
        """A descriptor to read an artifact's bytes, which the caller closes. Nothing is verified."""
        with self._file(digest) as file:
            return file.detach()

    def list(self) -> tuple[Artifact, ...]:
        """Every published artifact, by digest. Nothing is verified."""
        with child_or_none(self.root, BLOBS) as blobs:
            names = [] if blobs is None else [name for name in blobs.names() if is_digest(name)]
            entries = [(name, blobs.entry(name)) for name in names if blobs is not None]
        found = [(name, entry) for name, entry in entries if entry is not None and stat.S_ISREG(entry.st_mode)]
        return tuple(Artifact(name, entry.st_size) for name, entry in found)

    def remove(self, digest: str) -> bool:
        """Delete an artifact; false when there was none. Open descriptors and hard links go on having its bytes."""
        check_digest(digest)
        with child_or_none(self.root, BLOBS) as blobs:
            if blobs is None or not blobs.unlink(digest):
                return False
            blobs.sync()
            return True

    def partials(self) -> tuple[Partial, ...]:
        """Every unfinished staging, by digest."""
        with child_or_none(self.root, STAGING) as staging:
            names = [] if staging is None else staging.names()
            found = [_partial(staging, name) for name in names if staging is not None and _is_part(name)]
        return tuple(one for one in found if one is not None)

    def remove_partial(self, digest: str) -> bool:
        """Delete what an unfinished staging left; false when there is none, or some process is at it."""
        name = check_digest(digest) + PART
        with child_or_none(self.root, STAGING) as staging:
            if staging is None or staging.entry(name) is None:
                return False
            lock = FileLock.attempt(staging, name, flags=os.O_RDWR)
            if lock is None:
                return False
            with lock:
                return staging.unlink(name)

    def _file(self, digest: str) -> File:
        """An artifact's open file."""
        path = os.path.join(self.root.path, BLOBS, check_digest(digest))
        with ExitStack() as undo:
            with child_or_none(self.root, BLOBS) as blobs:
                if blobs is None:
                    raise missing(path)
                file = undo.enter_context(blobs.file(digest))
            undo.pop_all()
        return file

    def _verify(self, digest: str, size: int | None, progress: Progress | None) -> int:
        with self._file(digest) as file:
            actual = file.size
            if size is not None and actual != size:
                fault = "short" if actual < size else "long"
                message = f"it has {actual} bytes, {size} were declared: repair the store"
                raise invalid(file.path, fault, message, declared=size, actual=actual)
            hasher, done = hashlib.sha256(), 0
            while data := file.read(CHUNK):
                hasher.update(data)
                done += len(data)
                if progress is not None:
                    progress(done, actual)
        if hasher.hexdigest() != digest:
            message = f"its {done} bytes have the SHA-256 {hasher.hexdigest()}, not its name's: repair the store"
            raise invalid(file.path, "mismatch", message, expected=digest, actual=hasher.hexdigest())
        return done

    def _intact(self, digest: str, size: int, progress: Progress | None) -> bool:
        """Whether the artifact is there, whole and for good; false when it has to be staged."""
        try:
            self.verify(digest, size, progress)
        except ArtifactInvalid as error:
            if error.details["fault"] in _IN_THE_WAY:
                raise
            return False
        with self.root.child(BLOBS) as blobs:
            # Whoever published it may have failed to, or died before this.
            blobs.sync()
        return True


def _source(root: Folder, path: str) -> File:
    """A file outside the store, opened to be staged; a named pipe or folder is refused."""
    try:
        fd = root.layer.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as error:
        raise invalid(path, "missing", "there is no such file to stage: give the path of one") from error
    except OSError as error:
        raise invalid(path, "unreadable", f"can't open it: {error.strerror} (errno {error.errno})") from error
    source = File(root.layer, fd, path)
    try:
        if not stat.S_ISREG(source.status().st_mode):
            raise invalid(path, "not a file", "this is not a regular file: give one")
    except BaseException:
        with source:
            raise
    return source


def _is_part(name: str) -> bool:
    return name.endswith(PART) and is_digest(name[: -len(PART)])


def _partial(staging: Folder, name: str) -> Partial | None:
    """What is known of a part; ``None`` when it has just been published or removed."""
    entry = staging.entry(name)
    if entry is None or not stat.S_ISREG(entry.st_mode):
        return None
    lock = FileLock.attempt(staging, name, shared=True, flags=os.O_RDONLY)
    if lock is not None:
        lock.release()
    return Partial(name[: -len(PART)], entry.st_size, live=lock is None)
