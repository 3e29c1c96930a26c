"""Decision rows side by side: one graph over a batch of them, evaluated layer by layer.

Each row's instruction is read from its own slot, and nothing is written there: a row's own keys and values live no
longer than the step. Rows are padded on the right to the longest. Queries see only what is in front of them, so no row
sees its padding, and each is read at its own last token.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import mlx.core as mx

from ....actors.errors import BackendFault
from ....actors.work import DecisionRow, StepKind, StepShape
from ...models.heads import Head
from ..contract import Segment
from .caches import ASKED_TWICE, NEVER_ASKED, LayerCache, Seen, Slot
from .limits import step_need
from .resident import Running
from .scoring import head_values
from .tokens import token_array
from .workspace import StepMemory

PADDING = 0
"""The token behind a row's end; any would do."""


class RowsCache(Seen):
    """One layer of several slots whose first ``start`` positions hold the instruction; one row of the batch each."""

    def __init__(self, layers: Sequence[LayerCache], start: int) -> None:
        super().__init__(layers[0].window)
        self.offset = start
        self._layers = layers
        self._own: tuple[mx.array, mx.array] | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """The rows' own keys and values, ``(rows, kv_heads, tokens, head_dim)``; what their queries may see, lazily."""
        if self._own is not None:
            raise BackendFault(ASKED_TWICE)
        self._own = keys, values
        start, self.offset = self.offset, self.offset + keys.shape[2]
        first = self._first(start)
        return (
            _behind([layer.keys[:, :, first:start] for layer in self._layers], keys),
            _behind([layer.values[:, :, first:start] for layer in self._layers], values),
        )

    def commit(self) -> tuple[mx.array, mx.array]:
        """The rows' own keys and values, to be evaluated next; they are not kept here."""
        if self._own is None:
            raise BackendFault(NEVER_ASKED)
        own, self._own = self._own, None
        return own


def _behind(instructions: Sequence[mx.array], own: mx.array) -> mx.array:
    """Every row's positions behind its instruction's, written into one new buffer."""
    length = instructions[0].shape[2]
    if not length:
        return own
    rows, kv_heads, tokens, head_dim = own.shape
    seen = mx.zeros((rows, kv_heads, length + tokens, head_dim), own.dtype)
    for row, instruction in enumerate(instructions):
        seen[row : row + 1, :, :length] = instruction
    seen[:, :, length:] = own
    return seen


def run_rows(
    memory: StepMemory, running: Running, slots: Sequence[Slot], rows: Sequence[DecisionRow], heads: Sequence[Head]
) -> Generator[Segment, None, tuple[tuple[float, ...], ...]]:
    """Evaluate rows that share their ``start``, yielding between layers, and give the heads' values of each."""
    start, longest = rows[0].start, max(len(row.tokens) for row in rows)
    memory.require(step_need(running.sizes, StepShape(StepKind.DECISION, len(rows), longest, start + longest)))
    for slot, row in zip(slots, rows, strict=True):
        slot.check(start, len(row.tokens))
    padded = [[*row.tokens, *[PADDING] * (longest - len(row.tokens))] for row in rows]
    caches = [RowsCache(layers, start) for layers in zip(*(slot.caches for slot in slots), strict=True)]
    hidden = running.model.body(token_array(padded, running.sizes.vocabulary), caches)
    for number, cache in enumerate(caches):
        if number:
            yield Segment()
        mx.eval(*cache.commit())
    yield Segment()
    last = mx.stack([hidden[index, len(row.tokens) - 1] for index, row in enumerate(rows)])
    del hidden
    mx.eval(last)
    yield Segment()
    return tuple(head_values(running, last[index][None, None], heads) for index in range(len(rows)))
