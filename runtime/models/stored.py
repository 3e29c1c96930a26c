"""Models of a store: ``store:NAME``, from the journal's selection to files whose bytes are what somebody signed.

What is checked when: the manifest's signature whenever a reference is followed; the files' digests before anything
parses them (a file that has not changed since this process hashed it is not hashed again); every byte again in the
step that loads the weights; and in a repair every byte, with damaged files replaced from the seed.

``store:NAME@DIGEST`` is one manifest of the model, whatever is selected by then. A scheduler holds on to the one that
it was opened with this way, also in its worker's process.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ...actors.errors import ArtifactInvalid, CoresidentError, InvalidRequest
from ..config_store import StoreConfig
from .checkpoint import file_digest

if TYPE_CHECKING:
    from ..config import Config
    from ..store.holding import StoreLease
    from ..store.selection import Selection
    from ..store.store import Store

PREFIX = "store:"
BLOCK = 16 << 20


@attrs.frozen
class StoredFile:
    """A file of a model: where its bytes are, what they must be, and what to do when they aren't."""

    path: str
    digest: str
    size: int
    advice: str = "repair it with 'coresident store repair'"

    def check(self) -> None:
        """Compare the digest, which is kept for a path, size and modification time. Raises ``ArtifactInvalid``."""
        path = Path(self.path)
        try:
            found = "nothing" if not path.is_file() else file_digest(path)
        except OSError as error:
            raise self.invalid(f"can't be read ({error.strerror or error})", "") from error
        if found != self.digest:
            raise self.invalid("is not there" if found == "nothing" else f"has SHA-256 {found}", found)

    def verify(self) -> Iterator[int]:
        """Read every byte, in pieces, each as it is done. Raises ``ArtifactInvalid`` at the end, or where it can't."""
        hasher, size = hashlib.sha256(), 0
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            with open(os.open(self.path, flags), "rb", buffering=0) as file:
                while data := file.read(min(BLOCK, self.size + 1 - size)):
                    hasher.update(data)
                    size += len(data)
                    yield len(data)
        except OSError as error:
            raise self.invalid(f"can't be read ({error.strerror or error})", "") from error
        if size != self.size:
            raise self.invalid(f"has {'more' if size > self.size else size} bytes of {self.size}", str(size))
        if hasher.hexdigest() != self.digest:
            raise self.invalid(f"has SHA-256 {hasher.hexdigest()}", hasher.hexdigest())

    def invalid(self, what: str, found: str) -> ArtifactInvalid:
        """The error that this file is not what was signed."""
        return ArtifactInvalid(
            f"{self.path} {what}, where its signed manifest says SHA-256 {self.digest}: {self.advice}",
            file=self.path,
            field="digest",
            value=found,
            digest=self.digest,
        )


@attrs.frozen
class StoredModel:
    """A model of a store as it was selected: its manifest and files."""

    name: str
    manifest: str
    path: str
    files: tuple[StoredFile, ...]
    config: StoreConfig

    @property
    def reference(self) -> str:
        """What leads to this manifest again."""
        return f"{PREFIX}{self.name}@{self.manifest}"

    @property
    def store(self) -> str:
        """The store's folder."""
        return str(_folder(self.config))

    def check(self) -> None:
        """Refuse files whose digests are not the signed ones, before anything parses them."""
        for file in self.files:
            file.check()

    def lease(self) -> StoreLease:
        """Keep the files from being collected. Raises ``ArtifactInvalid`` when they are gone already."""
        store = _store(self.config)
        selection = store.selection(self.manifest)
        lease = store.lease(selection)
        try:
            store.path(selection)
        except BaseException:
            lease.release()
            raise
        return lease

    def place(self) -> None:
        """Make the model's path lead to what the store has now. Raises ``ArtifactInvalid`` where something is gone."""
        store = _store(self.config)
        store.path(store.selection(self.manifest))

    def repair(self) -> tuple[str, ...]:
        """Replace damaged files from the seed; digests of those that were. Raises ``ArtifactInvalid`` without one."""
        from ..store.seed import restore_manifest

        store = _store(self.config)
        if not self.config.seed:
            with _advised("no seed is named in store.seed to take good copies from"):
                return store.repair(store.selection(self.manifest))
        seed = Path(self.config.seed).expanduser()
        try:
            selection = store.selection(self.manifest)
        except ArtifactInvalid:
            selection = restore_manifest(store, self.manifest, seed)
        return store.repair(selection, seed)


def find_stored(reference: str, config: StoreConfig, device: str) -> StoredModel:
    """Follow ``store:NAME``, or ``store:NAME@DIGEST``. ``device`` is the backend's name.

    Raises:
        InvalidRequest: the reference has no meaning, or ``cryptography`` is not installed.
        ArtifactInvalid: nothing is selected, or store, journal or manifest are not what they should be.
    """
    name, _, digest = reference.removeprefix(PREFIX).partition("@")
    if not name:
        raise InvalidRequest(f"model {reference!r} names no model: write {PREFIX}NAME", model=reference)
    store = _store(config)
    advice = advice_for(name, config, config.device or device)
    with _advised(advice):
        found = store.selection(digest) if digest else store.selected(name, config.device or device)
    found = found or _imported(store, name, config, config.device or device)
    if found.model != name:
        raise ArtifactInvalid(
            f"model {reference!r}: that manifest is one of {found.model!r}", file=str(store.folder), field="model"
        )
    with _advised(advice):
        path = store.path(found)
    inside = path.parent if len(found.files) == 1 else path
    files = tuple(StoredFile(str(inside / entry.name), entry.digest, entry.size, advice) for entry in found.files)
    return StoredModel(name, found.manifest, str(path), files, config)


def selected_manifest(name: str, config: StoreConfig, device: str) -> str | None:
    """The digest of what is selected for a model, in whatever state it is. Raises for a damaged journal."""
    record = _store(config).record(name, config.device or device)
    return None if record is None else record.manifest


def meant(name: str, config: StoreConfig, device: str) -> str:
    """What is added where a model ``name`` was not found and the store has one; empty otherwise."""
    try:
        found = selected_manifest(name, config, device)
    except CoresidentError:
        return ""
    return "" if found is None else f"; did you mean {PREFIX}{name}?"


def advice_for(name: str, config: StoreConfig, device: str) -> str:
    """The command that repairs a model for which ``device`` is asked, and how opening does it by itself."""
    source = str(Path(config.seed).expanduser()) if config.seed else "FOLDER"
    words = [
        "coresident",
        "store",
        "repair",
        name,
        "--device",
        device,
        "--from",
        source,
        "--store",
        str(_folder(config)),
    ]
    words += [word for key in config.keys for word in ("--trust", str(Path(key).expanduser()))]
    seed = "" if config.seed else "name a folder with good copies in store.seed, and "
    return f"repair it with '{shlex.join(words)}', or {seed}set limits.restarts to 1 or more: then opening repairs it"


@contextmanager
def _advised(advice: str) -> Iterator[None]:
    """Say what to do about files that are missing or damaged; about whom to trust, something else has been said."""
    try:
        yield
    except ArtifactInvalid as error:
        if "fault" not in error.details and error.details.get("field") != "files":
            raise
        raise ArtifactInvalid(f"{error.message}; {advice}", **error.details) from error


def stored_of(backend: object) -> Mapping[str, StoredModel]:
    """The models of a backend that come from a store, by key."""
    found: Mapping[str, StoredModel] = getattr(backend, "stored", {})
    return found


def pinned(config: Config, backend: object) -> Config:
    """The configuration with the manifests that a backend was opened with, in place of the names that led there."""
    stored = stored_of(backend)
    changed: dict[str, Any] = {}
    if "generation" in stored:
        changed["generation"] = attrs.evolve(config.generation, model=stored["generation"].reference)
    if "decision" in stored and config.decision is not None:
        changed["decision"] = attrs.evolve(config.decision, model=stored["decision"].reference)
    return attrs.evolve(config, **changed)


def _imported(store: Store, name: str, config: StoreConfig, device: str) -> Selection:
    """The selection of a model that had none: on first use, the seed is imported."""
    found = None
    if config.seed:
        from ..store.seed import import_seed

        import_seed(store, Path(config.seed).expanduser())
        found = store.selected(name, device)
    if found is None:
        raise ArtifactInvalid(
            f"model {PREFIX}{name}: nothing is selected for it on device {device!r} in the store {store.folder}; stage "
            "a signed manifest with 'coresident store stage' and select it with 'coresident store activate'",
            file=str(store.folder),
            field="model",
            value=name,
            device=device,
        )
    return found


def _folder(config: StoreConfig) -> Path:
    from ..store.places import default_store

    return Path(config.path).expanduser() if config.path else default_store(os.environ)


def _store(config: StoreConfig) -> Store:
    """The store of a configuration, with the keys that are trusted."""
    from ..store.keys import load_public, load_trusted
    from ..store.places import default_trusted
    from ..store.store import Store

    if config.keys:
        keys = tuple(load_public(Path(key).expanduser()) for key in config.keys)
    else:
        keys = load_trusted(default_trusted(os.environ))
    return Store(_folder(config), keys)
