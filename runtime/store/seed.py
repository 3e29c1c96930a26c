"""First use: a model that came with an application moves into the store, once.

A seed is a folder, or a package's resource, with ``manifest.json`` (signed) and the files that it names. Packaged or
not, it is believed no more than anything else: no trusted signature, no import. The record in the journal comes last,
so an import that was cut short is gone on with at the next start; and once there is a record for the seed's model and
device, whatever it selects, nothing is imported again.
"""

from __future__ import annotations

from ...actors.errors import ArtifactInvalid
from .canonical import bad_value
from .collect import MANIFESTS, SUFFIX
from .digests import check_digest
from .manifest import FILE_NAME, MAX_BYTES, SignedManifest, parse_signed
from .repairing import Source
from .selection import Progress, Selection
from .store import Store


def import_seed(store: Store, seed: Source, progress: Progress | None = None) -> Selection | None:
    """Stage and activate a seed, for its manifest's device; ``None`` when the journal has a record for it already.

    Raises:
        ArtifactInvalid: it has no manifest, its manifest is not signed by a key that the store trusts, or a file of it
            is missing or not what was signed. Nothing is activated then.
    """
    signed = read_manifest(seed)
    manifest = signed.manifest
    signed.check(store.trusted, str(seed.joinpath(FILE_NAME)))
    if store.record(manifest.model, manifest.device) is not None:
        return None
    with store.held(signed.digest, create=True):
        selection = store.add_manifest(signed.text())
        store.stage(selection, seed, progress)
        store.activate(selection.manifest, progress=progress, first=True)
    return store.selected(manifest.model, manifest.device)


def restore_manifest(store: Store, digest: str, source: Source) -> Selection:
    """Put back a manifest whose file in the store is missing or damaged, from a seed, another store, or a file.

    Raises:
        ArtifactInvalid: the source has no manifest of this digest, or no trusted key has signed it.
    """
    kept = source.joinpath(MANIFESTS, check_digest(digest) + SUFFIX) if source.is_dir() else source
    signed = read_manifest(kept if kept.is_file() else source)
    if signed.digest != digest:
        raise bad_value(str(source), "manifest", signed.digest, f"{digest} is the one that is missing")
    return store.add_manifest(signed.text(), str(source))


def read_manifest(source: Source) -> SignedManifest:
    """The manifest in a seed's folder, or the one that is ``source`` itself; its signature is not looked at.

    Raises:
        ArtifactInvalid: there is none, or it is damaged.
    """
    file = source.joinpath(FILE_NAME) if source.is_dir() else source
    try:
        with file.open("rb") as reader:
            text = reader.read(MAX_BYTES + 2)
    except OSError as error:
        raise ArtifactInvalid(
            f"{file}: there is no manifest to read here ({error.strerror or error}); 'coresident store sign' makes one",
            file=str(file),
            field="manifest",
        ) from error
    return parse_signed(text, str(file))
