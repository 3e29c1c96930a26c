"""What a loaded model holds: weights, KV slots by role, and retained copies by handle."""

from __future__ import annotations

from functools import partial

import attrs

from ....actors.errors import BackendFault
from ...models.locate import ModelSource
from ..blobs import Blob
from ..contract import PlanRequest
from ..facts import DecoderFacts
from ..held import Held
from .cache import Slot
from .layout import ModelWeights


def read_facts(source: ModelSource) -> DecoderFacts:
    """Read a model's metadata and heads, and hash its file."""
    return DecoderFacts.of(source, source.open())


@attrs.define(eq=False)
class Resident(Held[Slot, Blob]):
    """A model's memory."""

    facts: DecoderFacts
    weights: ModelWeights | None = None

    def allocate(self, request: PlanRequest) -> None:
        """Allocate the KV slots of a plan."""
        self.allocate_slots(request, partial(Slot.empty, self.facts.config))

    @property
    def is_loaded(self) -> bool:
        return self.weights is not None

    def loaded(self) -> ModelWeights:
        if self.weights is None:
            raise BackendFault(f"weights of {self.facts.description.label} are not loaded: load them first")
        return self.weights
