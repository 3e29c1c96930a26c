"""What is known about a model from its metadata, and what a loaded one holds."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial

import attrs

from ....actors.errors import ArtifactInvalid, BackendFault
from ...models.architecture import DecoderConfig
from ...models.heads import Head, HeadSpec, choose_heads, resolve_heads
from ...models.locate import ModelSource
from ..contract import ModelDescription, PlanRequest, Segment
from ..held import Held
from ..prefix_header import Geometry
from .cache import Blob, Slot
from .layout import ModelWeights, read_weights


@attrs.frozen(eq=False)
class Facts:
    """A model's description, sizes and heads; heads are read at once, as they are small."""

    description: ModelDescription
    config: DecoderConfig
    heads: Mapping[str, Head]

    @property
    def geometry(self) -> Geometry:
        return Geometry.of(self.config, self.description.digest)

    def with_heads(self, specs: Sequence[HeadSpec]) -> Facts:
        """The same model with other heads; its file is not read again."""
        heads = resolve_heads(specs, self.description.digest, self.config.hidden, self.config.vocabulary)
        return attrs.evolve(self, description=attrs.evolve(self.description, heads=tuple(heads)), heads=heads)

    def choose_heads(self, names: Sequence[str]) -> tuple[Head, ...]:
        """The named heads in order. Raises InvalidRequest for a name that the model doesn't have."""
        return choose_heads(self.heads, names)

    def load(self, source: ModelSource) -> Generator[Segment, None, ModelWeights]:
        """Read the weights of the file that was described.

        Raises:
            ArtifactInvalid: the file is another one now.
        """
        checkpoint = source.open()
        described = self.description.digest
        if checkpoint.digest != described:
            raise ArtifactInvalid(
                f"{source.path}: digest is {checkpoint.digest}, it was {described} when the model was described: "
                "restore the file, or open a new backend for the new one",
                file=source.path,
                field="digest",
                value=checkpoint.digest,
            )
        return (yield from read_weights(checkpoint))


def read_facts(source: ModelSource) -> Facts:
    """Read a model's metadata and heads, and hash its file."""
    checkpoint = source.open()
    config = checkpoint.config
    heads = resolve_heads(source.heads, checkpoint.digest, config.hidden, config.vocabulary)
    description = ModelDescription(
        label=checkpoint.label,
        architecture=config.architecture,
        digest=checkpoint.digest,
        context_limit=config.context_limit,
        vocabulary=config.vocabulary,
        parameters=config.parameters(),
        layers=config.layers,
        kv_bytes_per_token=config.kv_bytes_per_token,
        stop_tokens=checkpoint.stop_tokens,
        heads=tuple(heads),
        path=checkpoint.path,
    )
    return Facts(description, config, heads)


@attrs.define(eq=False)
class Resident(Held[Slot, Blob]):
    """A model's memory: weights, KV slots by role, and retained copies by handle."""

    facts: Facts
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
