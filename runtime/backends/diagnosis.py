"""All checks of a model on a backend, one after the other, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from ...actors.errors import InvalidRequest
from .checks import FAILED, Bench, Finding, Measured, guarded
from .checks_decision import FEW, LENGTHS, check_decision
from .checks_environment import environment
from .checks_identity import check_identity
from .checks_memory import check_memory
from .checks_workspace import check_workspace
from .contract import Backend, PlanRequest

CHUNK = 64
CONTEXT = 384
SLOTS = 3
QUICK = 4
"""A quick look has chunks of a fourth of the size, and a third of the context."""


@attrs.frozen
class Diagnosis:
    """What the checks found; ``steps`` are all that were run, with charge and peak."""

    backend: str
    model: str
    digest: str
    environment: dict[str, str | int]
    findings: tuple[Finding, ...]
    steps: tuple[Measured, ...]

    @property
    def good(self) -> bool:
        return not any(finding.outcome == FAILED for finding in self.findings)


def request_for(backend: Backend, model: str, heads: tuple[str, ...], quick: bool = False) -> PlanRequest:
    """Slots that all checks need, as far as the model's context reaches."""
    context = min(CONTEXT // (2 if quick else 1), backend.describe(model).context_limit)
    chunk = min(CHUNK // (QUICK if quick else 1), max(1, context // 4))
    return PlanRequest(
        context=context,
        slots=SLOTS,
        chunk=chunk,
        decision_slots=2 if heads else 0,
        decision_context=context if heads else 0,
        rows_per_slice=2 if heads else 0,
        heads=heads,
    )


def diagnose(
    backend: Backend,
    model: str,
    heads: tuple[str, ...],
    quick: bool = False,
    told: Callable[[str | Finding], object] = lambda _: None,
) -> Diagnosis:
    """Load ``model`` and run every check on it; ``told`` hears the name of each before it runs, and then its findings.

    ``quick`` takes shorter chunks, and rows of up to 129 tokens. Raises ``InvalidRequest`` for a backend that computes
    nothing; whatever goes wrong in a check is a finding.
    """
    if backend.name == "modelled":
        raise InvalidRequest("the backend 'modelled' computes nothing: there is nothing to check", backend=backend.name)
    bench = Bench(backend, model, request_for(backend, model, heads, quick))
    checks: dict[str, Callable[[Bench], Iterable[Finding]]] = {
        "memory": check_memory,
        "identity": check_identity,
        "decision": lambda on: check_decision(on, FEW if quick else LENGTHS),
        "workspace": check_workspace,
    }
    findings: list[Finding] = []
    try:
        for name, check in checks.items():
            told(name)
            findings += guarded(name, lambda check=check: check(bench), told)  # type: ignore[misc]
    finally:
        backend.unload(model)
    description = backend.describe(model)
    return Diagnosis(
        backend=backend.name,
        model=description.label,
        digest=description.digest,
        environment=environment(backend),
        findings=tuple(findings),
        steps=tuple(bench.measured),
    )
