"""Checks that anyone can run on their own machine: does a backend keep its promises here?

A :class:`Bench` is one loaded model of a backend, driven through the contract alone, without a scheduler. Each check
(``checks_identity`` and its neighbours) runs steps on it and returns findings; every step's measured peak of workspace
is noted beside its charge. All of it belongs on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.errors import ArtifactInvalid, CoresidentError
from ...actors.work import DecisionRow, StepKind, StepShape
from .batched import score_rows
from .contract import Backend, DecodeInput, PlanRequest, Sampled, Segment, Workspace

Logits = NDArray[np.float32]
T = TypeVar("T")

OK = "ok"
FAILED = "FAILED"
SKIPPED = "skipped"


@attrs.frozen
class Finding:
    """What one check found: ``outcome`` is ``ok``, ``FAILED`` or ``skipped``; ``detail`` is a sentence with figures."""

    check: str
    what: str
    outcome: str
    detail: str
    figures: Mapping[str, float | int | str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, check: str, what: str, good: bool, detail: str, **figures: float | int | str) -> Finding:
        return cls(check, what, OK if good else FAILED, detail, figures)


@attrs.frozen
class Measured:
    """One step: its shape, the workspace charged for it and the most that it took, in bytes."""

    shape: StepShape
    charge: int
    peak: int

    @property
    def breach(self) -> bool:
        return self.peak > self.charge


class Keep:
    """Keeps a copy of the logits instead of choosing a token."""

    def __init__(self) -> None:
        self.logits: Logits = np.zeros(0, np.float32)

    def sample(self, logits: Logits) -> Sampled:
        self.logits = np.array(logits, np.float32)
        return Sampled(int(np.argmax(logits)))


def drain(steps: Generator[Segment, None, T], between: Callable[[], object] | None = None) -> T:
    """Run a step to its end; ``between`` is called between its segments, while it is suspended."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if between is not None:
            between()


@attrs.define(eq=False)
class Bench:
    """A loaded model. ``measured`` has every step that was run on it, in order; ``stepped`` hears of each."""

    backend: Backend
    model: str
    request: PlanRequest
    measured: list[Measured] = attrs.field(factory=list)
    stepped: Callable[[Measured], object] = lambda _: None

    @property
    def chunk(self) -> int:
        return self.request.chunk

    def load(self) -> None:
        """Load the model and warm it up."""
        self.place()
        self.warm()

    def place(self) -> None:
        """Load the model; its slots are empty."""
        drain(self.backend.load(self.model, self.request, True))

    def warm(self) -> None:
        """Run every kind of step once: the first time may compile, and takes more memory."""
        longest = max(self.request.context, self.request.decision_context)
        shape = StepShape(StepKind.WARMUP, max(1, self.request.slots), self.chunk, longest)
        with_workspace(self, shape, lambda workspace: drain(self.backend.warm(self.model, workspace)))

    def tokens(self, count: int, seed: int = 0) -> list[int]:
        """Token ids of no particular meaning, the same ones for a seed."""
        vocabulary = self.backend.describe(self.model).vocabulary
        return [int(token) for token in np.random.default_rng(seed).integers(0, vocabulary, count)]

    def prefill(
        self,
        slot: int,
        tokens: Sequence[int],
        start: int = 0,
        *,
        role: str = "generation",
        chunk: int | None = None,
        between: Callable[[], object] | None = None,
    ) -> Logits:
        """Prefill on a chunk grid and return the logits after the last token."""
        grid, keep, end = chunk or self.chunk, Keep(), start + len(tokens)
        low = start
        while low < end:
            high = min(end, (low // grid + 1) * grid)
            part, last = tokens[low - start : high - start], keep if high == end else None
            self.step(
                StepShape(StepKind.PREFILL, 1, len(part), high),
                lambda workspace, low=low, part=part, last=last: self.backend.prefill(  # type: ignore[misc]
                    workspace, self.model, role, slot, low, part, last
                ),
                between,
            )
            low = high
        return keep.logits

    def decode(self, rows: Sequence[tuple[int, int, int]]) -> list[Logits]:
        """One decode step of ``(slot, position, token)`` rows; the logits of each."""
        keeps = [Keep() for _ in rows]
        shape = StepShape(StepKind.DECODE, len(rows), 1, max(position for _, position, _ in rows) + 1)
        inputs = [DecodeInput(*row) for row in rows]
        self.step(shape, lambda workspace: self.backend.decode(workspace, self.model, inputs, keeps))
        return [keep.logits for keep in keeps]

    def score(self, rows: Sequence[tuple[int, int, Sequence[int]]]) -> list[tuple[float, ...]]:
        """Values of decision rows ``(slot, start, tokens)`` under one charge, side by side where the backend can."""
        longest = max(len(tokens) for _, _, tokens in rows)
        shape = StepShape(StepKind.DECISION, len(rows), longest, max(start + len(tokens) for _, start, tokens in rows))
        slice_rows = [DecisionRow(number, *row[:2], tuple(row[2])) for number, row in enumerate(rows)]
        heads = self.request.heads
        return list(
            self.step(shape, lambda workspace: score_rows(self.backend, workspace, self.model, slice_rows, heads))
        )

    def step(
        self,
        shape: StepShape,
        begin: Callable[[Workspace], Generator[Segment, None, T]],
        between: Callable[[], object] | None = None,
    ) -> T:
        """Run one step under the charge of its shape and note its peak."""
        return with_workspace(self, shape, lambda workspace: drain(begin(workspace), between))


def with_workspace(bench: Bench, shape: StepShape, act: Callable[[Workspace], T]) -> T:
    """Act with a workspace charged for ``shape``, whose peak is noted afterwards."""
    charge = bench.backend.charge(bench.model, shape)
    workspace = bench.backend.open_workspace(charge)
    try:
        return act(workspace)
    finally:
        bench.measured.append(Measured(shape, charge, workspace.peak()))
        workspace.close()
        bench.stepped(bench.measured[-1])


def same(one: Sequence[Logits], other: Sequence[Logits]) -> bool:
    """Whether two runs gave the same bits."""
    return len(one) == len(other) and all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def furthest(one: Sequence[Logits], other: Sequence[Logits]) -> float:
    """The largest difference between two runs, as a share of the largest value."""
    scale = max(float(np.abs(values).max()) for values in one) or 1.0
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True)) / scale


def guarded(
    check: str, run: Callable[[], Iterable[Finding]], told: Callable[[Finding], object] = lambda _: None
) -> list[Finding]:
    """The findings of a check; one that breaks is a failed one, and the next ones still run.

    ``told`` hears each as soon as it is there. Raises ``ArtifactInvalid``: a damaged model says nothing of the backend.
    """
    found: list[Finding] = []
    try:
        for finding in run():
            found.append(finding)
            told(finding)
    except ArtifactInvalid:
        raise
    except Exception as error:
        # Whatever a device, a driver or a library raises here is what the check is there to find.
        message = error.message if isinstance(error, CoresidentError) else f"{type(error).__name__}: {error}"
        found.append(Finding(check, "the check itself", FAILED, message))
        told(found[-1])
    return found
