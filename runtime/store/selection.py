"""What a store answers with: frozen values, no open files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from .manifest import FileEntry, SignedManifest

Progress = Callable[[int], None]
"""Called with the bytes done since the last call. What it raises ends the work, and comes out as it is."""


@attrs.frozen
class Selection:
    """A signed manifest of a store, its signature checked: its digest, the key's id, its model, device and files.

    ``device`` is that of the record which selects it, ``sequence`` that record's number; where no record was asked,
    they are the manifest's device and ``None``.
    """

    model: str
    device: str
    manifest: str
    files: tuple[FileEntry, ...]
    key: str
    sequence: int | None = None

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.files)

    @classmethod
    def of(cls, signed: SignedManifest) -> Selection:
        """The selection that no record was asked for."""
        manifest = signed.manifest
        return cls(manifest.model, manifest.device, signed.digest, manifest.files, signed.key)


@attrs.frozen
class FileState:
    """One file of a model after every byte of it was read; ``fault`` says what is wrong."""

    entry: FileEntry
    state: Literal["ok", "missing", "damaged"]
    fault: str = ""


@attrs.frozen
class ManifestState:
    """One manifest in the store; only ``digest``, ``leases`` and ``fault`` are known of one that cannot be read."""

    digest: str
    leases: int
    model: str = ""
    device: str = ""
    files: int = 0
    bytes: int = 0
    key: str = ""
    fault: str = ""


@attrs.frozen
class SelectionState:
    """The newest record of a (model, device); ``manifest`` is ``None`` when it selects nothing."""

    model: str
    device: str
    manifest: str | None
    sequence: int


@attrs.frozen
class StoreStatus:
    """What is in a store, as its names and sizes say; no bytes and no signatures were checked.

    ``bytes`` are of the artifacts, ``partial_bytes`` of what is staged in part, ``torn`` those after the last record.
    """

    path: str
    exists: bool
    selections: tuple[SelectionState, ...] = ()
    manifests: tuple[ManifestState, ...] = ()
    artifacts: int = 0
    bytes: int = 0
    partials: int = 0
    partial_bytes: int = 0
    records: int = 0
    torn: int = 0
