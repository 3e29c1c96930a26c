"""Small helpers around the reference backend."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import DecodeInput, PlanRequest, Sampled, Segment
from coresident.runtime.backends.reference import ReferenceBackend
from coresident.runtime.models.heads import VerbalizerHead
from coresident.runtime.models.locate import ModelSource

MODEL = "model"
HEADS = (
    VerbalizerHead("yes", "probability", positive=(3, 7), negative=(5,)),
    VerbalizerHead("rest", "rank", positive=(9,)),
)
REQUEST = PlanRequest(
    context=96, slots=3, chunk=16, decision_slots=3, decision_context=64, rows_per_slice=2, heads=("yes", "rest")
)


class Keep:
    """A greedy sampler that keeps the logits it saw."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def sample(self, logits: np.ndarray) -> Sampled:
        self.seen.append(logits.copy())
        return Sampled(int(np.argmax(logits)))


def drain(steps: Generator[Segment, None, Any]) -> tuple[Any, int]:
    """Run a step to its end: its result, and how often it yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def opened(source: ModelSource | None = None, request: PlanRequest = REQUEST, **options: Any) -> ReferenceBackend:
    """A backend with one loaded model, the synthetic one with two verbalizer heads by default."""
    backend = ReferenceBackend({MODEL: source or ModelSource(heads=HEADS)}, **options)
    drain(backend.load(MODEL, request, weights=True))
    return backend


def workspace(backend: ReferenceBackend, kind: StepKind, tokens: int, context: int, rows: int = 1):
    """A workspace charged for exactly this shape."""
    return backend.open_workspace(backend.charge(MODEL, StepShape(kind, rows, tokens, context)))


def prefill(
    backend: ReferenceBackend, slot: int, tokens: Sequence[int], start: int = 0, role: str = "generation"
) -> np.ndarray:
    """Prefill on the chunk grid of ``REQUEST`` and return the logits after the last token."""
    keep = Keep()
    for at in range(start - start % REQUEST.chunk, start + len(tokens), REQUEST.chunk):
        low, high = max(at, start), min(at + REQUEST.chunk, start + len(tokens))
        part = tokens[low - start : high - start]
        space = workspace(backend, StepKind.PREFILL, len(part), high)
        drain(backend.prefill(space, MODEL, role, slot, low, part, keep if high == start + len(tokens) else None))
        space.close()
    return keep.seen[-1]


def decode(backend: ReferenceBackend, rows: Sequence[tuple[int, int, int]]) -> list[np.ndarray]:
    """One decode step of ``(slot, position, token)`` rows; logits of each row."""
    keeps = [Keep() for _ in rows]
    space = workspace(backend, StepKind.DECODE, 1, max(position for _, position, _ in rows) + 1, len(rows))
    drain(backend.decode(space, MODEL, [DecodeInput(*row) for row in rows], keeps))
    space.close()
    return [keep.seen[0] for keep in keeps]


def score(
    backend: ReferenceBackend, slot: int, start: int, tokens: Sequence[int], heads: Sequence[str] = ("yes", "rest")
) -> tuple[float, ...]:
    """Score one row."""
    space = workspace(backend, StepKind.DECISION, len(tokens), start + len(tokens))
    values, _ = drain(backend.score(space, MODEL, slot, start, tokens, heads))
    space.close()
    return values
