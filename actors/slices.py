"""One decision request between its acceptance and its end, and the device steps that bring it forward.

An instruction is prefilled once into slot 0, chunk by chunk, and copied to the other slots; rows then follow it, one
to a slot. Another instruction takes its place and so invalidates it; the same one goes on after the chunks that
completed.
"""

from __future__ import annotations

import attrs

from ..policies.views import WorkClass
from .errors import CoresidentError
from .lifecycle import Lifecycle
from .messages import SubmitDecision
from .pace import Pace
from .scoring import DecisionSetup
from .work import CopyWork, DecisionRow, DecisionWork, PrefillWork, StepKind, StepRequest, Work, shape_of


@attrs.define(eq=False)
class Decision:
    """The mutable state of one request. ``ending`` is (outcome, reason, error) once it is to end early."""

    spec: SubmitDecision
    arrived: int
    life: Lifecycle
    raw: dict[int, tuple[float, ...]] = attrs.field(factory=dict)
    started: bool = False
    instruction_reused: int = 0
    ending: tuple[str, str, CoresidentError | None] | None = None
    losses: int = 0

    def missing(self) -> list[int]:
        """Rows that have no scores yet."""
        return [index for index in range(len(self.spec.rows)) if index not in self.raw]


class SliceMaker:
    """Builds the steps of one decision model; knows which instruction the slots hold."""

    def __init__(self, setup: DecisionSetup, owner: str) -> None:
        self._setup = setup
        self._owner = owner
        self._count = 0
        self._pace = Pace()
        self._instruction: tuple[str, tuple[int, ...]] | None = None
        self._filled = 0
        self._copied = False
        self.instructions = 0

    def remaining(self, decision: Decision) -> int:
        """Expected device nanoseconds until the request is answered; 0 before anything was measured."""
        tokens = sum(len(decision.spec.rows[index]) for index in decision.missing())
        held = self._filled if self._instruction == (decision.spec.identity, decision.spec.instruction) else 0
        prefill = self._pace.estimate(StepKind.PREFILL, len(decision.spec.instruction) - held)
        return prefill + self._pace.estimate(StepKind.DECISION, tokens)

    def holds(self, decision: Decision) -> bool:
        """Whether every slot holds the request's instruction."""
        wanted = (decision.spec.identity, decision.spec.instruction)
        return self._instruction == wanted and self._copied and self._filled == len(decision.spec.instruction)

    def invalidate(self) -> None:
        """What the slots hold is unknown."""
        self._instruction = None

    def next_step(self, decision: Decision) -> StepRequest:
        """An instruction chunk, its copy to the other slots, or a slice of rows."""
        if decision.life.state == "queued":
            self._begin(decision)
        if decision.life.state == "instructing":
            work = self._instruct(decision)
            if work is not None:
                return self._request(decision, work)
            decision.life.to("score")
        start = len(decision.spec.instruction)
        rows = tuple(
            DecisionRow(index, slot, start, decision.spec.rows[index])
            for slot, index in enumerate(decision.missing()[: self._setup.rows_per_slice])
        )
        return self._request(
            decision, DecisionWork(self._setup.model, decision.spec.request, rows, decision.spec.heads)
        )

    def finished(self, decision: Decision, work: Work, device_ns: int) -> None:
        """Take a finished step: what it computed is in the slots."""
        match work:
            case PrefillWork(tokens=tokens):
                self._filled += len(tokens)
            case CopyWork():
                self._copied = True
        self._pace.learn(work.kind, _units(work), device_ns)
        if decision.life.state == "instructing" and self.holds(decision):
            decision.life.to("score")

    def _begin(self, decision: Decision) -> None:
        instruction = decision.spec.instruction
        if self._instruction == (decision.spec.identity, instruction):
            decision.instruction_reused = self._filled
        else:
            # Rows without an instruction start at position 0, so they too take the place of what the slots held.
            self._instruction = (decision.spec.identity, instruction)
            self._filled, self._copied = 0, self._setup.rows_per_slice == 1 or not instruction
            self.instructions += bool(instruction)
        decision.life.to("score" if self.holds(decision) else "instruct")

    def _instruct(self, decision: Decision) -> Work | None:
        instruction, model = decision.spec.instruction, self._setup.model
        if self._filled < len(instruction):
            end = (self._filled // self._setup.chunk + 1) * self._setup.chunk
            tokens = instruction[self._filled : end]
            return PrefillWork(model, "decision", decision.spec.request, 0, self._filled, tokens, last=False)
        if not self._copied:
            return CopyWork(model, "decision", 0, tuple(range(1, self._setup.rows_per_slice)), len(instruction))
        return None

    def _request(self, decision: Decision, work: Work) -> StepRequest:
        self._count += 1
        shape = shape_of(work)
        step = StepRequest(
            step=f"{self._owner}/{self._count}",
            owner=self._owner,
            request=decision.spec.request,
            work_class=WorkClass.DECISION,
            work=work,
            charge=self._setup.charge(shape) if shape else 0,
            bound_ns=self._pace.estimate(work.kind, _units(work)),
            request_arrived=decision.arrived,
            deadline=decision.spec.deadline,
            started=decision.started,
        )
        decision.started = True
        return step


def _units(work: Work) -> int:
    match work:
        case PrefillWork(tokens=tokens):
            return len(tokens)
        case DecisionWork(rows=rows):
            return sum(len(row.tokens) for row in rows)
        case _:
            return 1
