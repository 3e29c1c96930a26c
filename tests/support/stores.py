"""Small stores for tests: bytes with their digests, readers that misbehave, and what lies in a store's folder."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.artifacts import Artifacts
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.layer import OS_LAYER, Layer

DATA = bytes(range(256)) * 4 + b"the last bytes"
DIGEST = hashlib.sha256(DATA).hexdigest()
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS)


def digest_of(data: bytes) -> str:
    """SHA-256, as the store writes it."""
    return hashlib.sha256(data).hexdigest()


def disk_error(number: int) -> OSError:
    """The error of the system with this number."""
    return OSError(number, os.strerror(number))


class Pieces:
    """A reader that gives at most ``piece`` bytes at a time, and records what it was asked and where it was moved."""

    def __init__(self, data: bytes = DATA, piece: int = 300, seeks: bool = True) -> None:
        self.data, self.piece, self.seeks = data, piece, seeks
        self.position, self.given, self.largest = 0, 0, 0

    def read(self, size: int, /) -> bytes:
        """The next piece."""
        self.largest = max(self.largest, size)
        piece = self.data[self.position :][: min(size, self.piece)]
        self.position += len(piece)
        self.given += len(piece)
        return piece

    def seekable(self) -> bool:
        """Whether :meth:`seek` works."""
        return self.seeks

    def seek(self, offset: int, whence: int) -> int:
        """Move on from here."""
        assert self.seeks
        assert whence == os.SEEK_CUR
        self.position += offset
        return self.position


class Unsynced(Layer):
    """The system's operations, but nothing waits for the medium: what is done a thousand times need not."""

    def fsync(self, fd: int) -> None:
        """Nothing."""


def open_store(path: Path, layer: Layer = OS_LAYER) -> Artifacts:
    """The artifacts of a store at ``path``, which is made."""
    return Artifacts(Folder.at(path, layer, create=True))


def leave_part(path: Path, data: bytes, digest: str = DIGEST) -> Path:
    """What a staging that was cut short has left."""
    part = path / "staging" / f"{digest}.part"
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(data)
    part.chmod(0o600)
    return part


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes; links are named and not followed."""
    found = {}
    for entry in sorted(path.rglob("*")):
        name = entry.relative_to(path).as_posix()
        if entry.is_symlink():
            found[name] = b"-> " + os.fsencode(os.readlink(entry))
        elif entry.is_file():
            found[name] = entry.read_bytes()
    return found


@contextmanager
def refused(fault: str, **details: object) -> Iterator[pytest.ExceptionInfo[ArtifactInvalid]]:
    """A block that ends with ``ArtifactInvalid`` of this fault, whose details hold at least these."""
    with pytest.raises(ArtifactInvalid) as caught:
        yield caught
    wanted = {"fault": fault, **details}
    assert {name: caught.value.details.get(name) for name in wanted} == wanted
