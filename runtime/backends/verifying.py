"""Models of a store on any backend: weights are never loaded from bytes that were not verified in the same step.

Only what ``repair`` sends also replaces what is damaged. A start or a retry that finds damage fails, and changes
nothing in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, cast

from ...actors.errors import ArtifactInvalid
from ..logged import Logged, inform, warn
from ..models.locate import ModelSource
from ..models.stored import StoredFile, StoredModel, stored_of
from .contract import Backend, PlanRequest, Segment


class VerifyingBackend:
    """Another backend, whose loads verify first. ``stored`` has its models that come from a store."""

    def __init__(self, inner: Backend, stored: Mapping[str, StoredModel]) -> None:
        self._inner = inner
        self._repairing: set[str] = set()
        self._loaded: set[str] = set()
        self.stored = dict(stored)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def repairing(self, model: str, asked: bool) -> None:
        """Whether the next load of a model replaces damaged files."""
        (self._repairing.add if asked else self._repairing.discard)(model)

    def load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        """Verify the model's files, a segment for about 16 MiB, and load them.

        Raises:
            ArtifactInvalid: a file is not what its manifest says, and was not to be replaced, or could not be.
        """
        stored = self.stored.get(model)
        if stored is not None and (weights or not self._kept(model)):
            self._loaded.discard(model)
            if model not in self._repairing or (yield from _repair(stored)):
                yield from _verify(stored)
        yield from self._inner.load(model, request, weights)
        self._loaded.add(model)

    def _kept(self, model: str) -> bool:
        """Whether there are weights to keep: a process that has just begun has none, nor has a device that was lost."""
        holds: Callable[[str], bool] = getattr(self._inner, "holds_weights", lambda _: True)
        return model in self._loaded and holds(model)

    def unload(self, model: str) -> None:
        """Free the model; the next load of it verifies again."""
        self._loaded.discard(model)
        self._inner.unload(model)


def verifying(backend: Backend, sources: Mapping[str, ModelSource]) -> Backend:
    """The backend itself, or one that verifies those of its models that come from a store."""
    stored = {key: source.stored for key, source in sources.items() if source.stored is not None}
    return cast(Backend, VerifyingBackend(backend, stored)) if stored else backend


def ask_repair(backend: Backend, model: str, asked: bool) -> None:
    """Tell a backend that has models of a store what its next load of one is for."""
    repairing = getattr(backend, "repairing", None)
    if repairing is not None:
        repairing(model, asked)


def repair_stored(backend: Backend, between: Callable[[], object] = lambda: None) -> None:
    """Verify every file of a backend's models and replace damaged ones, for a process that will open it anew.

    ``between`` is called after every segment, and ends this by raising. Raises ``ArtifactInvalid`` naming file and
    digest where there is no good copy.
    """
    for stored in stored_of(backend).values():
        for _ in _repair(stored):
            between()


def _repair(stored: StoredModel) -> Generator[Segment, None, bool]:
    """Read every byte, and replace what is damaged; whether anything was."""
    if (yield from _whole(stored)):
        return False
    replaced = stored.repair()
    inform(Logged.ARTIFACT_REPLACED, model=stored.name, manifest=stored.manifest, digests=list(replaced))
    return True


def _verify(stored: StoredModel) -> Generator[Segment, None, None]:
    for file in stored.files:
        yield from _verify_file(stored, file)


def _whole(stored: StoredModel) -> Generator[Segment, None, bool]:
    """Whether the store has manifest and files, and every byte is as signed; what is damaged is said."""
    whole = _placed(stored)
    for file in stored.files:
        try:
            yield from _verify_file(stored, file)
        except ArtifactInvalid as error:
            whole = False
            warn(Logged.ARTIFACT_DAMAGED, model=stored.name, file=file.path, digest=file.digest, error=error.message)
    return whole


def _placed(stored: StoredModel) -> bool:
    try:
        stored.place()
    except ArtifactInvalid as error:
        warn(Logged.ARTIFACT_DAMAGED, model=stored.name, manifest=stored.manifest, error=error.message)
        return False
    return True


def _verify_file(stored: StoredModel, file: StoredFile) -> Generator[Segment, None, None]:
    for _ in file.verify():
        yield Segment()
    inform(Logged.ARTIFACT_VERIFIED, model=stored.name, file=file.path, digest=file.digest, size=file.size)
