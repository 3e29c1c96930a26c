"""Decision rows side by side: what a backend with the feature ``batched_rows`` offers, and the way for all others.

Rows of one step are padded on the right to the longest. A row sees neither the padding nor its neighbours, and is read
at its own last token; only the rounding of its products may change with the batch, by no more than
:data:`ROW_TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar, cast

import attrs

from ...actors.work import DecisionRow
from .contract import Backend, Segment, Workspace

FEATURE = "batched_rows"
ROW_TOLERANCE = 1e-3
"""How far a row's scores may be from those it has alone, as a share of the score, or of 1 where it is smaller."""

Scores = tuple[float, ...]
_T = TypeVar("_T")


class BatchedRows(Protocol):
    """A backend with the feature ``batched_rows``."""

    def score_rows(
        self, workspace: Workspace, model: str, rows: Sequence[DecisionRow], heads: Sequence[str]
    ) -> Generator[Segment, None, tuple[Scores, ...]]:
        """Score decision rows behind one instruction, each in a slot of its own; values by row, then by head.

        All have the same ``start``. Nothing of a row stays in its slot.
        """
        ...


def score_rows(
    backend: Backend, workspace: Workspace, model: str, rows: Sequence[DecisionRow], heads: Sequence[str]
) -> Generator[Segment, None, tuple[Scores, ...]]:
    """Score the rows of a slice: side by side where the backend can, and otherwise one after the other."""
    if FEATURE in backend.capabilities.features:
        return (yield from cast(BatchedRows, backend).score_rows(workspace, model, rows, heads))
    values = []
    for row in rows:
        segments = backend.score(workspace, model, row.slot, row.start, row.tokens, heads)
        values.append((yield from segments if row is rows[-1] else _not_last(segments)))
    return tuple(values)


def _not_last(segments: Generator[Segment, None, _T]) -> Generator[Segment, None, _T]:
    """The same segments of a part that is followed by another: none of them is the step's last."""
    while True:
        try:
            segment = next(segments)
        except StopIteration as end:
            value: _T = end.value
            return value
        yield attrs.evolve(segment, last=False)
