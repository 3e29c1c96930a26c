"""What backends that run decoders have in common: models by key, and what a loaded one holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, Self, TypeVar

import attrs

from ...actors.errors import BackendFault, InvalidRequest
from ..models.heads import Head, HeadSpec
from ..models.locate import ModelSource
from .contract import DecodeInput, ModelDescription, PlanRequest, Sampler

SlotT = TypeVar("SlotT")
BlobT = TypeVar("BlobT")


class AnyFacts(Protocol):
    """What is known of a model before it is loaded."""

    @property
    def description(self) -> ModelDescription: ...

    @property
    def heads(self) -> Mapping[str, Head]: ...

    def with_heads(self, specs: Sequence[HeadSpec]) -> Self:
        """The same model with other heads; its files are not read again."""
        ...


class AnyResident(Protocol):
    """A model's memory."""

    @property
    def is_loaded(self) -> bool: ...


FactsT = TypeVar("FactsT", bound=AnyFacts)
ResidentT = TypeVar("ResidentT", bound=AnyResident)


@attrs.define(eq=False, kw_only=True)
class Held(Generic[SlotT, BlobT]):
    """KV slots by role, and retained copies by handle."""

    slots: dict[str, list[SlotT]] = attrs.field(factory=dict)
    retained: dict[int, BlobT] = attrs.field(factory=dict)
    chunk: int = 1

    def allocate_slots(self, request: PlanRequest, make: Callable[[int], SlotT]) -> None:
        """Make the KV slots of a plan, each of so many positions."""
        self.chunk = request.chunk
        self.slots["generation"] = [make(request.context) for _ in range(request.slots)]
        self.slots["decision"] = [make(request.decision_context) for _ in range(request.decision_slots)]

    def slot(self, role: str, index: int) -> SlotT:
        """A KV slot. Raises InvalidRequest for one that wasn't allocated."""
        slots = self.slots.get(role, [])
        if not 0 <= index < len(slots):
            raise InvalidRequest(f"{role} slot {index} was asked for, there are {len(slots)}", role=role, slot=index)
        return slots[index]

    def check_free(self, handle: int) -> None:
        """Refuse a handle that holds a retained copy already."""
        if handle in self.retained:
            raise InvalidRequest(f"handle {handle} is in use: drop it first", handle=handle)

    def blob(self, handle: int) -> BlobT:
        """A retained copy. Raises InvalidRequest for an unknown handle."""
        if handle not in self.retained:
            raise InvalidRequest(f"there is no retained KV {handle}: it was dropped or never saved", handle=handle)
        return self.retained[handle]


class ModelShelf(Generic[FactsT, ResidentT]):
    """The models of one device by key; ``read`` finds a source's facts."""

    def __init__(self, models: Mapping[str, ModelSource], read: Callable[[ModelSource], FactsT]) -> None:
        self._models = dict(models)
        self._read = read
        self._facts: dict[str, FactsT] = {}
        self._residents: dict[str, ResidentT] = {}

    def describe(self, model: str) -> ModelDescription:
        """The model's facts, read once; its file is hashed.

        Raises:
            ArtifactInvalid: the model's file, or one of its head files, is not what it claims to be.
        """
        return self._known(model).description

    def add_heads(self, model: str, heads: tuple[HeadSpec, ...]) -> None:
        """Give a model decision heads before it is planned; heads that it had are replaced.

        Raises:
            ArtifactInvalid, InvalidRequest: a head is not what it claims to be, or does not belong to the model.
        """
        self._facts[model] = self._known(model).with_heads(heads)

    def head_kinds(self, model: str) -> Mapping[str, str]:
        """The model's heads: name to ``rank``, ``probability`` or ``choice``."""
        return {name: head.kind for name, head in self._known(model).heads.items()}

    def holds_weights(self, model: str) -> bool:
        """Whether a load may keep the model's weights, so that it reads no file."""
        resident = self._residents.get(model)
        return resident is not None and resident.is_loaded

    def _known(self, model: str) -> FactsT:
        if model not in self._facts:
            if model not in self._models:
                known = ", ".join(sorted(self._models)) or "none"
                raise InvalidRequest(f"there is no model {model!r}: this device has {known}", model=model)
            self._facts[model] = self._read(self._models[model])
        return self._facts[model]

    def _resident(self, model: str) -> ResidentT:
        self._known(model)
        resident = self._residents.get(model)
        if resident is None or not resident.is_loaded:
            raise BackendFault(f"model {model!r} is not loaded: load it first", model=model)
        return resident

    def _holder(self, model: str) -> ResidentT:
        """Where a model's retained copies are, loaded or not."""
        resident = self._residents.get(model)
        if resident is None:
            raise BackendFault(f"model {model!r} is not loaded: it retains nothing", model=model)
        return resident


def check_rows(rows: Sequence[DecodeInput], samplers: Sequence[Sampler]) -> None:
    """Raises ``InvalidRequest`` unless each row of a decode step has a slot and a sampler of its own."""
    if not rows or len(rows) != len(samplers) or len({row.slot for row in rows}) != len(rows):
        raise InvalidRequest(
            f"a decode step has {len(rows)} rows and {len(samplers)} samplers: it needs at least one row, "
            "and a slot and a sampler of its own for each",
            rows=len(rows),
            samplers=len(samplers),
        )
