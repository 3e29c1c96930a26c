"""The workspace check: no step takes more than its charge, and one that would is refused before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...actors.errors import BudgetExceeded
from ...actors.work import StepKind, StepShape
from .checks import Bench, Finding, Keep, Measured, drain, same
from .contract import PlanRequest

NAME = "workspace"
KINDS = (StepKind.WARMUP, StepKind.PREFILL, StepKind.DECODE, StepKind.DECISION)


def check_workspace(bench: Bench) -> Iterator[Finding]:
    """Chunks, decode steps and decision rows of several sizes up to the ends of the slots; a refusal."""
    sweep(bench)
    yield from findings_of(bench.measured)
    yield _refusal(bench)


def sweep(bench: Bench) -> None:
    """Run steps of every kind at the smallest and largest sizes that the slots hold."""
    context, chunk = bench.request.context, bench.chunk
    tokens = bench.tokens(context, seed=5)
    bench.prefill(0, tokens[:-1])
    bench.decode([(0, context - 1, tokens[-1])])
    for count in (1, chunk // 2):
        bench.prefill(1, tokens[:count])
    slots = range(1, bench.request.slots)
    bench.decode([(0, context - 1, tokens[-1]), *((slot, 0, tokens[slot]) for slot in slots)])
    if bench.request.decision_slots:
        long = bench.request.decision_context
        row = bench.tokens(long, seed=6)
        for part in (row[:1], row[: long // 2], row):
            bench.score([(slot, 0, part) for slot in range(bench.request.rows_per_slice)])


def largest(bench: Bench, shapes: Iterable[StepShape]) -> None:
    """Run these steps, each as large as its shape says; what they took is in ``bench.measured``.

    A role's first slot is filled in front of its steps, once, and copied to the others.
    """
    filled: dict[str, int] = {}
    for shape in shapes:
        tokens, begin = bench.tokens(shape.context, seed=7), shape.context - shape.tokens
        role, slots = role_of(bench.request, shape), range(shape.rows)
        front = filled.get(role, 0)
        if begin > front:
            bench.prefill(0, tokens[front:begin], front, role=role)
        filled[role] = max(front, begin)
        if begin and shape.rows > 1:
            drain(bench.backend.copy(bench.model, role, 0, tuple(slots[1:]), begin))
        if shape.kind is StepKind.PREFILL:
            bench.prefill(0, tokens[begin:], begin, role=role, chunk=shape.context)
            filled[role] = shape.context
        elif shape.kind is StepKind.DECODE:
            bench.decode([(slot, begin, tokens[begin]) for slot in slots])
            filled[role] = shape.context
        elif shape.kind is StepKind.DECISION:
            bench.score([(slot, begin, tokens[begin:]) for slot in slots])
            filled[role] = begin


def role_of(request: PlanRequest, shape: StepShape) -> str:
    """Whose slots a step uses; what is longer than a prompt may be is the instruction of a decision."""
    if shape.kind is StepKind.DECISION or shape.context > request.context:
        return "decision"
    return "generation"


def tightest(steps: Iterable[Measured]) -> dict[StepKind, Measured]:
    """The step of each kind that came closest to its charge, or went furthest beyond."""
    found: dict[StepKind, Measured] = {}
    for step in steps:
        known = found.get(step.shape.kind)
        if known is None or step.peak * known.charge > known.peak * step.charge:
            found[step.shape.kind] = step
    return found


def findings_of(steps: Sequence[Measured]) -> Iterator[Finding]:
    """For each kind of step, whether any of them took more than its charge."""
    closest = tightest(steps)
    for kind in KINDS:
        if kind not in closest:
            continue
        step, count = closest[kind], sum(each.shape.kind is kind for each in steps)
        breaches = sum(each.breach for each in steps if each.shape.kind is kind)
        shape = step.shape
        detail = (
            f"steps {count}, the tightest took {step.peak:,} of {step.charge:,} bytes charged "
            f"(rows {shape.rows}, tokens {shape.tokens}, context {shape.context})"
        )
        if breaches:
            detail = f"{breaches} beyond the charge; {detail}"
        figures = {"steps": count, "breaches": breaches, "peak": step.peak, "charge": step.charge}
        yield Finding.of(NAME, f"{kind.value} within its charge", not breaches, detail, **figures)


def _refusal(bench: Bench) -> Finding:
    """A step with a fraction of its charge has to be refused, and the backend to be as before."""
    what, tokens = "a step over its charge is refused", bench.tokens(bench.chunk, seed=8)
    before = bench.prefill(1, tokens)
    charge = bench.backend.charge(bench.model, StepShape(StepKind.PREFILL, 1, bench.chunk, bench.chunk))
    workspace = bench.backend.open_workspace(charge // 8)
    try:
        drain(bench.backend.prefill(workspace, bench.model, "generation", 1, 0, tokens, Keep()))
    except BudgetExceeded as refusal:
        peak = workspace.peak()
        good = same([before], [bench.prefill(1, tokens)]) and peak <= charge // 8
        after = "the next step as before" if good else "but the next step is not as before"
        return Finding.of(NAME, what, good, f"{refusal.message}; {after}", peak=peak, charge=charge // 8)
    finally:
        workspace.close()
    return Finding.of(NAME, what, False, f"a step that may take {charge:,} bytes ran with {charge // 8:,}")
