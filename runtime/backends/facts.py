"""What backends that lay weights out themselves know of a model before they load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import attrs

from ...actors.errors import ArtifactInvalid
from ..models.architecture import DecoderConfig
from ..models.checkpoint import Checkpoint
from ..models.heads import Head, HeadSpec, choose_heads, resolve_heads
from ..models.locate import ModelSource
from .contract import ModelDescription
from .prefix_header import Geometry


@attrs.frozen(eq=False)
class DecoderFacts:
    """A model's description, sizes and heads; heads are read at once, as they are small."""

    description: ModelDescription
    config: DecoderConfig
    heads: Mapping[str, Head]

    @classmethod
    def of(cls, source: ModelSource, checkpoint: Checkpoint) -> Self:
        """The facts of an open checkpoint, with the heads of its source."""
        config = checkpoint.config
        heads = resolve_heads(source.heads, checkpoint.digest, config.hidden, config.vocabulary)
        return cls(describe(checkpoint, tuple(heads)), config, heads)

    @property
    def geometry(self) -> Geometry:
        return Geometry.of(self.config, self.description.digest)

    def with_heads(self, specs: Sequence[HeadSpec]) -> Self:
        """The same model with other heads; its file is not read again."""
        heads = resolve_heads(specs, self.description.digest, self.config.hidden, self.config.vocabulary)
        return attrs.evolve(self, description=attrs.evolve(self.description, heads=tuple(heads)), heads=heads)

    def choose_heads(self, names: Sequence[str]) -> tuple[Head, ...]:
        """The named heads in order. Raises InvalidRequest for a name that the model doesn't have."""
        return choose_heads(self.heads, names)

    def reopen(self, source: ModelSource) -> Checkpoint:
        """The file that was described, to read its weights.

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
        return checkpoint


def describe(checkpoint: Checkpoint, heads: tuple[str, ...]) -> ModelDescription:
    """The description of a checkpoint whose KV is kept in float32."""
    config = checkpoint.config
    return ModelDescription(
        label=checkpoint.label,
        architecture=config.architecture,
        digest=checkpoint.digest,
        context_limit=config.context_limit,
        vocabulary=config.vocabulary,
        parameters=config.parameters(),
        layers=config.layers,
        kv_bytes_per_token=config.kv_bytes_per_token,
        stop_tokens=checkpoint.stop_tokens,
        heads=heads,
        path=checkpoint.path,
    )
