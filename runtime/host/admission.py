"""Admission: from a configuration and a backend to the memory account, with every byte of the partition placed.

Nothing is loaded here. The account of a configuration is the same whichever host runs it, and is what
``coresident plan`` shows.
"""

from __future__ import annotations

import attrs

from ...actors.errors import BudgetExceeded, InvalidRequest
from ...actors.memory.ledger import WORKSPACE
from ...actors.memory.plan import Admission, AllocationPlan, Buffer, admit_context
from ...actors.work import StepKind, StepShape
from ..backends.contract import Backend, PlanRequest
from ..config import Config

GENERATION = "generation"
DECISION = "decision"


@attrs.frozen
class Account:
    """The memory account of a configuration: what every part takes of the partition, in bytes."""

    partition: int
    context: int
    capped: bool
    buffers: tuple[Buffer, ...]

    @property
    def total(self) -> int:
        return sum(buffer.total for buffer in self.buffers)

    @property
    def free(self) -> int:
        return self.partition - self.total


@attrs.frozen
class LargestStep:
    """The largest step of its kind, and its workspace charge against the budget, in bytes."""

    model: str
    shape: StepShape
    charge: int
    budget: int

    @property
    def fits(self) -> bool:
        return self.charge <= self.budget


def plan_requests(config: Config, context: int, heads: tuple[str, ...]) -> dict[str, PlanRequest]:
    """What each resident model is asked to hold at a candidate context; one model may serve both roles."""
    generation, decision = config.generation, config.decision
    plan = PlanRequest(context=context, slots=generation.sequences, chunk=generation.chunk)
    if decision is None:
        return {GENERATION: plan}
    empty = PlanRequest(context=0, slots=0, chunk=generation.chunk)
    both = attrs.evolve(
        plan if decision.shares_weights else empty,
        decision_slots=decision.rows_per_slice,
        decision_context=decision.context,
        rows_per_slice=decision.rows_per_slice,
        heads=heads,
    )
    return {GENERATION: both} if decision.shares_weights else {GENERATION: plan, DECISION: both}


def admit(config: Config, backend: Backend, heads: tuple[str, ...]) -> Account:
    """Find the admitted context and the whole account, with a workspace for every step that it can lead to.

    Raises ``BudgetExceeded`` with what is missing.
    """
    account = place(config, backend, heads)
    for step in largest_steps(config, backend, account.context, heads):
        if not step.fits:
            shape = step.shape
            raise BudgetExceeded(
                f"workspace of the largest {shape.kind.value} step of {step.model} ({shape.rows} rows, {shape.tokens} "
                f"tokens, context {shape.context})",
                step.charge,
                step.budget,
                "enlarge device.workspace, or lower generation.chunk, generation.context or the rows of a step",
            )
    return account


def place(config: Config, backend: Backend, heads: tuple[str, ...]) -> Account:
    """Find the admitted context and the whole account, whatever steps then need. Raises ``BudgetExceeded``."""
    fixed = _budgets(config)
    available = config.device.partition - sum(buffer.total for buffer in fixed)
    if available < 0:
        raise BudgetExceeded(
            "the sum of the workspace and retained budgets",
            config.device.partition - available,
            config.device.partition,
            "enlarge device.partition, or lower device.workspace or generation.retained",
        )
    admission: Admission = admit_context(
        context_cap(config, backend),
        lambda context: plan_at(config, backend, heads, context),
        available,
        what=backend.describe(GENERATION).label,
    )
    return Account(config.device.partition, admission.context, admission.capped, admission.plan.buffers + fixed)


def largest_steps(config: Config, backend: Backend, context: int, heads: tuple[str, ...]) -> tuple[LargestStep, ...]:
    """The largest steps that admitted requests can lead to, kind by kind, and what they charge to the workspace."""
    found = []
    for model, plan in plan_requests(config, context, heads).items():
        shapes = []
        if plan.slots:
            shapes.append(StepShape(StepKind.PREFILL, 1, min(plan.chunk, plan.context), plan.context))
            shapes.append(StepShape(StepKind.DECODE, plan.slots, 1, plan.context))
        if plan.decision_slots:
            tokens = min(plan.chunk, plan.decision_context)
            if plan.decision_context > plan.context:
                # An instruction is prefilled in chunks too; where it may be longer than a prompt, so is its last one.
                shapes.append(StepShape(StepKind.PREFILL, 1, tokens, plan.decision_context))
            shapes.append(StepShape(StepKind.DECISION, plan.rows_per_slice, tokens, plan.decision_context))
        found += [LargestStep(model, shape, backend.charge(model, shape), config.device.workspace) for shape in shapes]
    return tuple(found)


def account_at(config: Config, backend: Backend, heads: tuple[str, ...], context: int) -> Account:
    """The account at one context, fitting or not: ``free`` is negative by the bytes that are missing."""
    buffers = plan_at(config, backend, heads, context).buffers + _budgets(config)
    return Account(config.device.partition, context, context == context_cap(config, backend), buffers)


def context_cap(config: Config, backend: Backend) -> int:
    """The most context that would be admitted: the configured cap, or the model's own limit.

    Raises ``InvalidRequest`` for a cap above that limit: the model was not made for more.
    """
    asked, model = config.generation.context, backend.describe(GENERATION)
    if asked > model.context_limit:
        raise InvalidRequest(
            f"generation.context is {asked}: {model.label} has a context of {model.context_limit} tokens; ask for at "
            "most that, or for 0, which is the model's own",
            field="generation.context",
            value=asked,
            limit=model.context_limit,
        )
    return asked or model.context_limit


def plan_at(config: Config, backend: Backend, heads: tuple[str, ...], context: int) -> AllocationPlan:
    """What all resident models allocate at a candidate context."""
    plans = [backend.plan(model, request) for model, request in plan_requests(config, context, heads).items()]
    limits = [plan.max_buffer for plan in plans if plan.max_buffer is not None]
    counts = [plan.max_buffers for plan in plans if plan.max_buffers is not None]
    buffers = tuple(buffer for plan in plans for buffer in plan.buffers)
    return AllocationPlan(buffers, min(limits, default=None), min(counts, default=None))


def _budgets(config: Config) -> tuple[Buffer, ...]:
    return (
        Buffer("workspace budget", WORKSPACE, config.device.workspace),
        Buffer("retained prefixes budget", f"retained/{GENERATION}", config.generation.retained),
    )
