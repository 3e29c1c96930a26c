"""What a store's folder says of itself, without keys and without reading artifacts."""

from __future__ import annotations

from ...actors.errors import ArtifactInvalid
from .artifacts import Artifacts
from .folders import Folder
from .journal import Journal
from .leases import Leases
from .selection import ManifestState, SelectionState, StoreStatus
from .shelf import Shelf


def status_of(root: Folder) -> StoreStatus:
    """The status of the store in folder ``root``. Raises ``ArtifactInvalid`` for a damaged journal."""
    contents = Journal(root).read()
    artifacts, partials = Artifacts(root).list(), Artifacts(root).partials()
    selections = [
        SelectionState(record.model, record.device, record.manifest, record.sequence)
        for record in sorted(contents.selected().values(), key=lambda record: (record.model, record.device))
    ]
    return StoreStatus(
        root.path,
        exists=True,
        selections=tuple(selections),
        manifests=tuple(state for digest in Shelf(root).digests() if (state := _manifest(root, digest)) is not None),
        artifacts=len(artifacts),
        bytes=sum(artifact.size for artifact in artifacts),
        partials=len(partials),
        partial_bytes=sum(partial.size for partial in partials),
        records=len(contents.records),
        torn=contents.torn,
    )


def _manifest(root: Folder, digest: str) -> ManifestState | None:
    """What a manifest's file says; ``None`` when it has just been collected."""
    leases = Leases(root).count(digest)
    try:
        signed = Shelf(root).get(digest)
    except ArtifactInvalid as error:
        if error.details.get("fault") == "missing":
            return None
        return ManifestState(digest, leases, fault=error.message)
    about = signed.manifest
    return ManifestState(digest, leases, about.model, about.device, len(about.files), about.size, signed.key)
