"""From raw head values to what a client reads, and what a decision actor is told about its model.

Kinds of heads: ``rank`` is the raw score, ``probability`` its logistic function (independent rows), ``choice`` the
softmax over the rows of the request. Formulas: the usual ones, computed stably in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import attrs

from ..policies.views import Abstention
from .errors import ContextExceeded, CoresidentError, InvalidRequest, Overloaded
from .events import HeadScores
from .messages import SubmitDecision
from .work import StepShape


@attrs.frozen
class DecisionSetup:
    """What a decision actor is told when it is made.

    ``context`` is the capacity of one KV slot in tokens (instruction and row together); ``rows_per_slice`` is the
    number of slots; ``heads`` maps names to kinds. A request is run again ``reruns`` times after the device was lost.
    """

    model: str
    context: int
    rows_per_slice: int
    chunk: int
    max_rows: int
    queue: int
    heads: Mapping[str, str]
    charge: Callable[[StepShape], int]
    abstention: Abstention
    reruns: int = 0


@attrs.frozen
class DecisionStatistics:
    """Decision requests by outcome; ``instructions`` counts how often an instruction had to be computed."""

    open: int
    completed: int
    abstained: int
    cancelled: int
    failed: int
    refused: int
    instructions: int


def refusal(spec: SubmitDecision, setup: DecisionSetup, open_requests: Mapping[str, object]) -> CoresidentError | None:
    """Why a decision request cannot be accepted; ``None`` when it is bounded and known."""
    if spec.request in open_requests:
        return InvalidRequest(f"request {spec.request} is already open: use a new id")
    if not 1 <= len(spec.rows) <= setup.max_rows:
        return InvalidRequest(
            f"{len(spec.rows)} rows: a decision has 1 to {setup.max_rows}; split it or raise max_rows",
            rows=len(spec.rows),
            limit=setup.max_rows,
        )
    unknown = [head for head in spec.heads if head not in setup.heads]
    if unknown or not spec.heads:
        return InvalidRequest(f"unknown heads {unknown}: name at least one of {', '.join(sorted(setup.heads))}")
    for index, row in enumerate(spec.rows):
        if not row:
            return InvalidRequest(f"row {index} has no tokens: every row needs at least 1")
        if len(spec.instruction) + len(row) > setup.context:
            return ContextExceeded.of_row(index, len(spec.instruction), len(row), setup.context)
    if len(open_requests) >= setup.queue:
        return Overloaded(
            f"{len(open_requests)} decisions are open, the limit is {setup.queue}: send fewer or later",
            open=len(open_requests),
            limit=setup.queue,
        )
    return None


def _sigmoid(value: float) -> float:
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))


def _softmax(values: Sequence[float]) -> tuple[float, ...]:
    most = max(values)
    weights = [math.exp(value - most) for value in values]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def finish(head: str, kind: str, raw: Sequence[float]) -> HeadScores:
    """Finished values of one head, one per row. Raises ``InvalidRequest`` for an unknown kind."""
    match kind:
        case "rank":
            return HeadScores(head, kind, tuple(raw))
        case "probability":
            return HeadScores(head, kind, tuple(_sigmoid(value) for value in raw))
        case "choice":
            return HeadScores(head, kind, _softmax(raw))
    raise InvalidRequest(f"head {head} has kind {kind}: known are rank, probability and choice")
