"""What can go wrong with a store, named by its true fault.

Two kinds of errors leave this package. :class:`~coresident.actors.errors.ArtifactInvalid` says that something in
the store, or offered to it, is not what it claims to be; ``details["fault"]`` is one of :data:`FAULTS`.
:class:`StoreFault` says that the file system refused an operation; it keeps the system's error as its cause.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ...actors.errors import ArtifactInvalid, CoresidentError

FAULTS = ("missing", "unreadable", "short", "long", "mismatch", "symlink", "not a file", "not a folder", "digest")
"""Every value that ``details["fault"]`` of an ``ArtifactInvalid`` from the store's files can have."""

_RIGHT = "give this user the right to it, or name another place"
_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some of your quota and try again",
    errno.EROFS: "the file system is read-only: mount it writable, or name another place",
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.EIO: "check the disk, then verify and repair the store",
    errno.EMFILE: "close some files, or raise the limit on open files (ulimit -n)",
}
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class StoreFault(CoresidentError):
    """The file system refused an operation on the store. Carries path, operation and the system's error number."""

    @classmethod
    def of(cls, operation: str, path: str, error: OSError) -> StoreFault:
        """The fault that ``error`` is, with advice."""
        advice = _ADVICE.get(error.errno or 0, "see the system's error")
        if operation == "link" and error.errno in _NO_LINKS:
            advice = "a store needs a file system with hard links, and its own user: keep it on one"
        reason = error.strerror or str(error)
        message = f"can't {operation} {path}: {reason} (errno {error.errno}): {advice}"
        return cls(message, operation=operation, path=path, errno=error.errno)


class StoreBusy(StoreFault):
    """Another process holds a lock of the store for longer than the caller would wait."""


def invalid(path: str, fault: str, message: str, **details: object) -> ArtifactInvalid:
    """An ``ArtifactInvalid`` that names its file and its fault, one of :data:`FAULTS`."""
    return ArtifactInvalid(f"{path}: {message}", file=path, fault=fault, **details)


def missing(path: str) -> ArtifactInvalid:
    """The error for a file that is not there."""
    return invalid(path, "missing", "there is no such file in the store: stage it, or repair the store")


@contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    """Raise what the system refuses inside the block as a typed error that names operation and path."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise StoreFault.of(operation, path, error) from error
