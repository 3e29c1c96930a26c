"""What the commands of the store have in common: how manifests are named, and what is said of the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from ..actors.errors import ArtifactInvalid, InvalidRequest
from ..runtime.store.seed import read_manifest, restore_manifest
from ..runtime.store.selection import Selection
from ..runtime.store.store import Store


def recorded(store: Store, model: str, device: str) -> str:
    """The digest of the manifest that is selected, whatever state it is in."""
    record = store.record(model, device)
    if record is None or record.manifest is None:
        raise InvalidRequest(
            f"nothing is selected for {model} on device {device} in {store.folder}; see 'coresident store list'",
            model=model,
            device=device,
        )
    return record.manifest


def manifest_named(store: Store, named: str) -> str:
    """The digest of a manifest that is given by its file, its folder, the beginning of its digest, or its model."""
    if Path(named).exists():
        return read_manifest(Path(named)).digest
    known = store.status().manifests
    found = [state.digest for state in known if len(named) >= 8 and state.digest.startswith(named)]
    found = found or [state.digest for state in known if state.model == named]
    if len(found) != 1:
        fits = f"{len(found)} manifests in {store.folder} fit" if found else f"no manifest in {store.folder} is"
        raise InvalidRequest(
            f"{fits} {named!r}: give 8 or more digits of one that 'coresident store list' shows, or a manifest's file"
        )
    return found[0]


def repeated(store: Path | None, trust: list[Path] | None) -> str:
    """The options of this command that the next one needs too."""
    words = [] if store is None else ["--store", str(store)]
    words += [word for key in trust or () for word in ("--trust", str(key))]
    return "".join(f" {shlex.quote(word)}" for word in words)


def restored(store: Store, manifest: str, source: Path | None) -> Selection:
    """The selection of a manifest, which comes from the source when the store's is missing or damaged."""
    try:
        return store.selection(manifest)
    except ArtifactInvalid:
        if source is None:
            raise
    selection = restore_manifest(store, manifest, source)
    typer.echo(f"Replaced manifest {manifest}.")
    return selection


def is_about_trust(error: ArtifactInvalid) -> bool:
    return error.details.get("field") in ("key", "signature")


@contextmanager
def sourced(source: Path | None) -> Iterator[None]:
    """Say how good copies are named, where none were and some are needed."""
    try:
        yield
    except ArtifactInvalid as error:
        if source is not None or is_about_trust(error):
            raise
        raise ArtifactInvalid(f"{error.message} (--from FOLDER)", **error.details) from error


@contextmanager
def resumable() -> Iterator[None]:
    """Say of an interrupted copy that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("coresident: interrupted; the same command goes on from here.", err=True)
        raise


def count_of(number: int, what: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
