"""A store: models whose every byte somebody trusted has signed, and which of them each (model, device) runs from.

What is checked, and when. The signature: when a manifest is added, activated, or selected. Every byte of every
artifact: when it is staged, activated, verified or repaired; not when it is merely selected. The journal's checksums:
each time it is read. Against damage by accident this is complete but for records that a medium lost after it had said
they were written. Against somebody who can write the store it means that nothing is selected that a trusted key has
not signed for this model; an older signed manifest of it can be, since signatures have no time.

A :class:`Store` holds nothing open between calls, so it can be used from several threads and processes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .artifacts import Artifacts
from .canonical import bad_value
from .collect import MANIFESTS, SUFFIX, VIEWS, Collected, Keep, collect
from .faults import invalid, translated
from .folders import Folder
from .holding import StoreLease
from .journal import NAME, Journal
from .keys import PublicKey
from .layer import OS_LAYER, Layer
from .leases import Leases
from .manifest import ANY, SignedManifest, check_name, parse_signed
from .records import Contents, Record
from .repairing import Source, mend, require_whole, stage_from, states
from .selection import FileState, Progress, Selection, StoreStatus
from .shelf import Shelf
from .status import status_of
from .views import link_view


def _keys(keys: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
    return tuple(keys)


@attrs.frozen
class Store:
    """The store in a folder, which its first writer makes, and the keys whose signatures count here."""

    folder: Path = attrs.field(converter=Path)
    trusted: tuple[PublicKey, ...] = attrs.field(default=(), converter=_keys)
    layer: Layer = OS_LAYER

    def selected(self, model: str, device: str = ANY) -> Selection | None:
        """What ``model`` runs from on ``device``; ``None`` when nothing is selected.

        The newest record of exactly this device decides; where there is none, the newest one of device ``any``.

        Raises:
            ArtifactInvalid: the journal or the manifest is damaged, or no trusted key has signed it for this model.
        """
        record = self.record(check_name("model", model), check_name("device", device))
        while record is not None and record.manifest is not None:
            try:
                return self._recorded(record, record.manifest)
            except ArtifactInvalid:
                # Since the journal was read, another may have been activated and this one collected.
                newest = self.record(model, device)
                if newest == record:
                    raise
                record = newest
        return None

    def record(self, model: str, device: str) -> Record | None:
        """The newest record that decides for (model, device); ``None`` when there is none."""
        records = self._journal().selected()
        return records.get((model, device)) or records.get((model, ANY))

    def selection(self, manifest: str) -> Selection:
        """The manifest of this digest, whether it is activated or not.

        Raises:
            ArtifactInvalid: it is missing, damaged, or not signed by a trusted key.
        """
        with self._open() as root:
            return Selection.of(self._signed(root, manifest))

    def add_manifest(self, text: bytes, file: str = "manifest") -> Selection:
        """Keep a signed manifest, given by its file's bytes; nothing is activated.

        Raises:
            ArtifactInvalid: it is no manifest, or not signed by a trusted key.
        """
        signed = parse_signed(text, file)
        signed.check(self.trusted, file)
        with self._open(create=True) as root:
            Shelf(root).put(signed)
        return Selection.of(signed)

    def stage(self, selection: Selection, source: Source, progress: Progress | None = None) -> tuple[str, ...]:
        """Copy a model's files from a folder; the digests of those that were not here before.

        Raises:
            ArtifactInvalid: a file is missing there, or is not what the manifest says; or the manifest is not here (any
                more), without which a collection would take the files again.
        """
        with self.held(selection.manifest) as root:
            Shelf(root).get(selection.manifest)
            return stage_from(root, selection, source, progress)

    def activate(
        self, manifest: str, device: str | None = None, progress: Progress | None = None, first: bool = False
    ) -> Selection:
        """From now on the manifest's model runs from it, on ``device`` (as in the manifest when not given).

        The signature is checked and every byte of every artifact read; then the record is written, and on the medium
        when this returns. None is written when the newest record says so already, or, with ``first``, when there is
        any for this model and device.

        Raises:
            ArtifactInvalid: the manifest is not signed by a trusted key, or an artifact is missing or damaged.
            InvalidRequest: the manifest is for another device.
        """
        with self.held(manifest) as root:
            selection = Selection.of(self._signed(root, manifest))
            chosen = selection.device if device is None else check_name("device", device)
            if selection.device not in (ANY, chosen):
                raise InvalidRequest(
                    f"manifest {manifest} of {selection.model} is signed for device {selection.device}, not {chosen}: "
                    "activate it there, or sign one for this device",
                    device=chosen,
                )
            require_whole(states(root, selection, progress), root.path)
            link_view(root, manifest, selection.files)
            record = self._write(root, selection.model, chosen, manifest, first)
            return attrs.evolve(selection, device=chosen, sequence=record.sequence)

    def deactivate(self, model: str, device: str = ANY) -> Record:
        """From now on nothing is selected for (model, device). Its files stay until garbage collection.

        Raises:
            InvalidRequest: nothing is selected for exactly this device.
        """
        newest = self._journal().selected().get((check_name("model", model), check_name("device", device)))
        if newest is None or newest.manifest is None:
            raise InvalidRequest(f"nothing is selected for {model} on device {device} in {self.folder}", model=model)
        with self._open() as root:
            return self._write(root, model, device, None)

    def path(self, selection: Selection) -> Path:
        """Where a loader finds the model: its one file, or a folder with its files. No bytes are read.

        Hold a lease meanwhile. Raises ``ArtifactInvalid`` when a file is missing.
        """
        with self._open() as root:
            link_view(root, selection.manifest, selection.files)
        view = self.folder / VIEWS / selection.manifest
        return view / selection.files[0].name if len(selection.files) == 1 else view

    def lease(self, selection: Selection) -> StoreLease:
        """Keep garbage collection from a selection's files until the lease ends.

        Raises:
            ArtifactInvalid: a collection was faster, and files are gone.
            StoreFault: the store is read-only, where nothing can be collected either.
        """
        root = Folder.at(self.folder, self.layer)
        try:
            lease = StoreLease(root, Leases(root).take(selection.manifest))
        except BaseException:
            with root:
                raise
        try:
            Shelf(root).get(selection.manifest)
            _require_there(root, selection)
        except BaseException:
            lease.release()
            raise
        return lease

    @contextmanager
    def held(self, manifest: str, create: bool = False) -> Iterator[Folder]:
        """Keep garbage collection from a manifest and its files, as far as they are there, while the block runs."""
        with self._open(create) as root, Leases(root).take(manifest):
            yield root

    def verify(self, selection: Selection, progress: Progress | None = None) -> tuple[FileState, ...]:
        """Read every byte of a selection's artifacts, and say of each what it is."""
        with self._open() as root:
            return states(root, selection, progress)

    def repair(
        self, selection: Selection, source: Source | None = None, progress: Progress | None = None
    ) -> tuple[str, ...]:
        """Read every byte, and replace what is missing or damaged from ``source``: a seed's folder, or another store.

        What can be replaced is, also when something else cannot. Returns the digests of what was replaced.

        Raises:
            ArtifactInvalid: naming each file that is not whole and has no good copy in the source.
        """
        with self.held(selection.manifest) as root:
            return mend(root, selection, source, progress)

    def gc(self) -> Collected:
        """Delete manifests and artifacts that no record selects and no lease holds, and what was staged in part.

        Raises:
            ArtifactInvalid: the journal or a selected manifest is damaged, so that what it needs is not known.
        """
        with self._open() as root:
            collected = collect(root, lambda leased: self._keep(root, leased), partials=True)
            Shelf(root).clear()
            return collected

    def status(self) -> StoreStatus:
        """What is in the store; needs no keys, changes nothing, and says of a missing folder that it does not exist."""
        if not self._exists():
            return StoreStatus(str(self.folder), exists=False)
        with self._open() as root:
            return status_of(root)

    @contextmanager
    def _open(self, create: bool = False) -> Iterator[Folder]:
        if not create and not self._exists():
            raise invalid(str(self.folder), "missing", "there is no store here; 'coresident store stage' makes one")
        with Folder.at(self.folder, self.layer, create) as root:
            yield root

    def _exists(self) -> bool:
        with translated("look at", str(self.folder)):
            return self.folder.exists()

    def _journal(self) -> Contents:
        if not self._exists():
            return Contents()
        with self._open() as root:
            return Journal(root).read()

    def _signed(self, root: Folder, digest: str) -> SignedManifest:
        signed = Shelf(root).get(digest)
        signed.check(self.trusted, f"{root.path}/{MANIFESTS}/{digest}{SUFFIX}")
        return signed

    def _recorded(self, record: Record, manifest: str) -> Selection:
        """The selection that a record makes, when the manifest agrees with it."""
        selection = self.selection(manifest)
        if selection.model != record.model or selection.device not in (ANY, record.device):
            reason = f"its manifest {manifest} is signed for {selection.model} on device {selection.device}"
            raise bad_value(f"{self.folder}/{NAME}", "model", f"{record.model} on device {record.device}", reason)
        return attrs.evolve(selection, device=record.device, sequence=record.sequence)

    def _write(self, root: Folder, model: str, device: str, manifest: str | None, first: bool = False) -> Record:
        with Journal(root).held() as journal:
            newest = journal.contents.selected().get((model, device))
            if newest is not None and (first or newest.manifest == manifest):
                journal.settle()
                return newest
            return journal.append(model, device, manifest)

    def _keep(self, root: Folder, leased: frozenset[str]) -> Keep:
        """What a collection leaves, asked when no lease can be taken and no activation can be between."""
        records = Journal(root).read().selected().values()
        selected = frozenset(record.manifest for record in records if record.manifest is not None)
        shelf = Shelf(root)
        manifests = selected | leased.intersection(shelf.digests())
        entries = [entry for digest in manifests for entry in shelf.get(digest).manifest.files]
        return Keep(manifests, frozenset(entry.digest for entry in entries), manifests - selected)


def _require_there(root: Folder, selection: Selection) -> None:
    artifacts = Artifacts(root)
    gone = [entry.name for entry in selection.files if not artifacts.has(entry.digest)]
    if gone:
        raise ArtifactInvalid(
            f"{root.path}: {', '.join(gone[:5])} of {selection.model} are gone from the store: stage or repair them",
            file=root.path,
            field="files",
            value=gone,
        )
