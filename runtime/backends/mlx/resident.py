"""What a loaded model holds: weights, KV slots by role, and retained copies by handle."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial

import attrs
import mlx.core as mx

from ....actors.errors import BackendFault
from ...models.heads import LinearHead
from ...models.locate import ModelSource
from ..contract import PlanRequest, Segment
from ..held import Held
from .caches import Slot
from .description import MlxFacts, Sizes
from .limits import nothing_cached
from .loading import LoadedModel, load_model
from .retained import Blob


@attrs.frozen(eq=False)
class Running:
    """What steps compute with: a model, its sizes, and its linear heads' weights, float32 ``(hidden,)``."""

    model: LoadedModel
    sizes: Sizes
    linear: Mapping[str, mx.array]


@attrs.define(eq=False)
class Resident(Held[Slot, Blob]):
    """A model's memory; everything in it is evaluated."""

    facts: MlxFacts
    running: Running | None = None

    def load(self, source: ModelSource) -> Generator[Segment, None, None]:
        """Read the weights, and put linear heads beside them. Raises ``ArtifactInvalid`` like ``load_model``."""
        self.running = None
        model = yield from load_model(source, self.facts)
        heads = [head for head in self.facts.heads.values() if isinstance(head, LinearHead)]
        linear = {head.name: mx.array(head.weight) for head in heads}
        mx.eval(linear)
        self.running = Running(model, self.facts.sizes, linear)

    def allocate(self, request: PlanRequest) -> None:
        """Allocate the KV slots of a plan, evaluated: what is not would be charged to the first step."""
        with nothing_cached():
            self.allocate_slots(request, partial(Slot, self.facts.sizes))

    @property
    def is_loaded(self) -> bool:
        return self.running is not None

    def loaded(self) -> Running:
        """What steps compute with. Raises BackendFault when it is not loaded."""
        if self.running is None:
            raise BackendFault(f"weights of {self.facts.description.label} are not loaded: load them first")
        return self.running
