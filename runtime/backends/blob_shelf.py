"""What backends have in common that retain KV as blobs in host memory: files of it, and its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, Protocol, TypeVar

from ...actors.work import PrefixFile
from .blobs import Blob
from .contract import Segment
from .facts import DecoderFacts
from .held import AnyFacts, AnyResident, ModelShelf
from .prefix_file import read_prefix, write_prefix


class KeepsBlobs(AnyResident, Protocol):
    """A model's memory, with retained copies by handle."""

    retained: dict[int, Blob]

    @property
    def facts(self) -> DecoderFacts: ...

    def blob(self, handle: int) -> Blob: ...

    def check_free(self, handle: int) -> None: ...


FactsT = TypeVar("FactsT", bound=AnyFacts)
KeepsT = TypeVar("KeepsT", bound=KeepsBlobs)


class BlobShelf(ModelShelf[FactsT, KeepsT], Generic[FactsT, KeepsT]):
    """The models of one device whose retained KV lies in blobs; ``name`` is the backend's, which files carry."""

    name: str

    def store(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """Write retained KV to a file straight from where it lies. Raises like ``write_prefix``."""
        resident = self._resident(model)
        geometry, tokens, blob = resident.facts.geometry, len(file.tokens), resident.blob(handle)
        blob.check(geometry, tokens)
        yield from write_prefix(file, self.name, geometry, blob.pieces(tokens))

    def fetch(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """Read a file to where its KV is retained. Raises ``ArtifactInvalid`` when it is not the model's."""
        resident = self._resident(model)
        resident.check_free(handle)
        geometry, tokens = resident.facts.geometry, len(file.tokens)
        blob = Blob.empty(geometry, tokens)
        yield from read_prefix(file, self.name, geometry, blob.pieces(tokens))
        resident.retained[handle] = blob

    def drop(self, model: str, handle: int) -> None:
        self._holder(model).retained.pop(handle, None)
