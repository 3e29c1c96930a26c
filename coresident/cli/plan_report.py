"""The account of a configuration as data: what fits, what does not, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..actors.errors import BudgetExceeded
from ..actors.memory.plan import CONTEXT_GRID, AllocationPlan
from ..policies.catalog import resolve
from ..runtime.backends.catalog import Opened
from ..runtime.config import ESTIMATED, Config
from ..runtime.host.admission import (
    Account,
    LargestStep,
    account_at,
    context_cap,
    largest_steps,
    place,
    plan_requests,
)


@attrs.frozen
class Step:
    """The largest step of its kind: its shape, and its workspace charge in bytes against the budget."""

    kind: str
    rows: int
    tokens: int
    context: int
    charge: int
    fits: bool


@attrs.frozen
class PlanReport:
    """What ``plan`` answers. Without room for any context, ``account`` is that of the smallest one.

    ``missing`` are bytes of the partition; ``refusal`` says what could not be placed. ``next_context`` is the next
    step of the context grid and ``next_missing`` what it would lack; ``None`` when the cap is admitted. ``margin`` are
    the percent that charges have on top, ``None`` on a backend whose charges need none.
    """

    backend: str
    models: Mapping[str, str]
    cap: int
    cap_configured: bool
    account: Account
    refusal: str | None
    missing: int
    next_context: int | None
    next_missing: int | None
    steps: tuple[Step, ...]
    margin: int | None

    @property
    def fits(self) -> bool:
        """Whether a scheduler opens, and every step of an admitted request may run."""
        return self.refusal is None and all(step.fits for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        """Exact figures: bytes and tokens as integers."""
        account = self.account
        buffers = [attrs.asdict(buffer) | {"total": buffer.total} for buffer in account.buffers]
        return {
            "fits": self.fits,
            "backend": self.backend,
            "models": dict(self.models),
            "partition": account.partition,
            "total": account.total,
            "free": account.free,
            "missing": self.missing,
            "refusal": self.refusal,
            "context": {
                "admitted": 0 if self.refusal else account.context,
                "shown": account.context,
                "cap": self.cap,
                "next": self.next_context,
                "next_missing": self.next_missing,
            },
            "accounts": AllocationPlan(account.buffers).by_account(),
            "buffers": buffers,
            "steps": [attrs.asdict(step) for step in self.steps],
            "margin": self.margin,
        }


def report_on(config: Config, opened: Opened) -> PlanReport:
    """Plan the models of a configuration that was opened, loading nothing.

    Raises:
        InvalidRequest, ArtifactInvalid: the configuration or a model's file is not what it should be.
        PolicyFault: a policy cannot be made.
    """
    for kind, policy in attrs.asdict(config.policies, recurse=False).items():
        resolve(kind, policy.name, **policy.parameters)  # type: ignore[call-overload] # any of the kinds
    heads = tuple(opened.heads)
    cap = context_cap(config, opened.backend)
    refusal = None
    try:
        account = place(config, opened.backend, heads)
    except BudgetExceeded as error:
        account = account_at(config, opened.backend, heads, min(cap, CONTEXT_GRID))
        refusal = _refusal(account) if account.free < 0 else error.message
    above = None
    if refusal is None and account.context < cap:
        above = min(cap, (account.context // CONTEXT_GRID + 1) * CONTEXT_GRID)
    lacking = None if above is None else -account_at(config, opened.backend, heads, above).free
    models = plan_requests(config, account.context, heads)
    return PlanReport(
        backend=opened.backend.name,
        models={model: opened.backend.describe(model).label for model in models},
        cap=cap,
        cap_configured=config.generation.context > 0,
        account=account,
        refusal=refusal,
        missing=max(0, -account.free),
        next_context=above,
        next_missing=None if lacking is None else max(0, lacking),
        steps=tuple(_step(step) for step in largest_steps(config, opened.backend, account.context, heads)),
        margin=config.device.margin if config.device.backend == ESTIMATED else None,
    )


def _refusal(account: Account) -> str:
    return (
        f"the configuration takes {account.total} bytes at a context of {account.context} tokens, the partition has "
        f"{account.partition}, {-account.free} are missing: enlarge the partition, lower the workspace, retained bytes "
        "or sequences, or use a smaller model"
    )


def _step(step: LargestStep) -> Step:
    shape = step.shape
    return Step(shape.kind.value, shape.rows, shape.tokens, shape.context, step.charge, step.fits)
