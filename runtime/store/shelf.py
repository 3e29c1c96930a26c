"""Signed manifests on disk: ``manifests/<digest>.json``, each under the SHA-256 of its bytes.

One is published whole or not at all: written to ``<digest>.part`` under that file's lock, synced, renamed, and the
folder synced. Reading compares the bytes with the name.
"""

from __future__ import annotations

import hashlib
import os

from ...actors.errors import ArtifactInvalid
from .canonical import bad_value
from .collect import MANIFESTS, SUFFIX
from .digests import CHUNK, check_digest, is_digest
from .faults import invalid
from .folders import Folder, child_or_none
from .locks import FileLock
from .manifest import MAX_BYTES, SignedManifest, parse_signed

PART = ".part"


class Shelf:
    """The manifests of the store in folder ``root``."""

    def __init__(self, root: Folder) -> None:
        self.root = root

    def put(self, signed: SignedManifest) -> str:
        """Keep a manifest, on the medium when this returns; its digest. A damaged copy of it is replaced."""
        digest = signed.digest
        with self.root.child(MANIFESTS, create=True) as folder:
            if not _whole(folder, digest):
                with FileLock.take(folder, digest + PART) as lock:
                    lock.file.truncate(0)
                    lock.file.write(signed.text())
                    lock.file.settle()
                    folder.replace(digest + PART, folder, digest + SUFFIX)
            folder.sync()
        return digest

    def get(self, digest: str) -> SignedManifest:
        """The manifest of this digest; its signature is not looked at.

        Raises:
            ArtifactInvalid: the digest is none, or the file is missing, not what its name says, or no manifest.
        """
        check_digest(digest)
        with self.root.child(MANIFESTS) as folder:
            return parse_signed(*_read(folder, digest))

    def digests(self) -> tuple[str, ...]:
        """Every manifest here, by digest, sorted."""
        with child_or_none(self.root, MANIFESTS) as folder:
            names = [] if folder is None else folder.names()
        return tuple(name.removesuffix(SUFFIX) for name in names if is_digest(name.removesuffix(SUFFIX)))

    def clear(self) -> None:
        """Remove what publications that never ended have left."""
        with child_or_none(self.root, MANIFESTS) as folder:
            for name in [] if folder is None else folder.names():
                lock = FileLock.attempt(folder, name, flags=os.O_RDWR) if folder and name.endswith(PART) else None
                if folder is not None and lock is not None:
                    with lock:
                        folder.unlink(name)


def _read(folder: Folder, digest: str) -> tuple[bytes, str]:
    """A manifest's bytes, and its path."""
    with folder.file(digest + SUFFIX) as file:
        if file.size > MAX_BYTES + 1:
            raise bad_value(file.path, "size", file.size, f"a manifest has at most {MAX_BYTES} bytes")
        text = bytearray()
        while len(text) <= MAX_BYTES + 1 and (more := file.read(CHUNK)):
            text += more
    found = hashlib.sha256(text).hexdigest()
    if found != digest:
        raise invalid(file.path, "mismatch", f"its bytes have the digest {found}: repair it", value=found)
    return bytes(text), file.path


def _whole(folder: Folder, digest: str) -> bool:
    try:
        _read(folder, digest)
    except ArtifactInvalid:
        return False
    return True
