"""From a model's files to a loaded model of mlx-lm's class: one array at a time, each evaluated before the next.

Nothing is held twice but the array that is being read, and no freed buffer is used again: MLX takes ones that are
larger, and what a model holds would be more than its plan.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import attrs
import mlx.core as mx

from ....actors.errors import ArtifactInvalid
from ...models.locate import ModelSource
from ..contract import Segment
from .description import MlxFacts, open_source
from .limits import nothing_cached
from .tracing import body_of
from .weight_arrays import own_arrays, place


class _Given:
    """Stands in for the stack of layers and answers with hidden states that are there already."""

    def __init__(self, body: Any, hidden: mx.array) -> None:
        self._body, self._hidden = body, hidden

    def __call__(self, *_: Any, **__: Any) -> mx.array:
        return self._hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


@attrs.frozen(eq=False)
class LoadedModel:
    """A model whose arrays are all evaluated; belongs to the thread that loaded it.

    ``weights`` is mlx-lm's module; its stack of layers is the attribute ``name`` of ``parent``.
    """

    weights: Any
    parent: Any
    name: str

    def body(self, tokens: mx.array, caches: Sequence[Any]) -> mx.array:
        """Normalized last hidden states ``(1, n, hidden)`` for int32 ``(1, n)``, lazy; a cache a layer."""
        hidden: mx.array = getattr(self.parent, self.name)(tokens, list(caches))
        return hidden

    def head(self, hidden: mx.array) -> mx.array:
        """Logits ``(1, n, vocabulary)`` for normalized hidden states ``(1, n, hidden)``, lazy.

        The model's own forward function makes them, whatever its output part is: its layers are passed over.
        """
        body = getattr(self.parent, self.name)
        setattr(self.parent, self.name, _Given(body, hidden))
        try:
            logits: mx.array = self.weights(mx.zeros(hidden.shape[:2], mx.int32))
        finally:
            setattr(self.parent, self.name, body)
        return logits


def load_model(source: ModelSource, facts: MlxFacts) -> Generator[Segment, None, LoadedModel]:
    """Read the weights of the files that were described; a segment ends after each array.

    Raises:
        ArtifactInvalid: the files are others now.
    """
    opened = open_source(source)
    described = facts.description.digest
    if opened.digest != described:
        raise ArtifactInvalid(
            f"{source.path}: digest is {opened.digest}, it was {described} when the model was described: "
            "restore the file, or open a new backend for the new one",
            file=source.path,
            field="digest",
            value=opened.digest,
        )
    model, pending = opened.model, opened.pending
    while pending:
        name = next(iter(pending))
        with nothing_cached():
            array = pending.pop(name).read()
            mx.eval(array)
        place(model, {name: array})
        del array
        yield Segment()
    with nothing_cached():
        mx.eval(list(own_arrays(model).values()))
    model.eval()
    return LoadedModel(model, *body_of(model, opened.file))
