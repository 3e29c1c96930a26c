"""Allocation plans and context admission.

A backend answers a candidate context with an :class:`AllocationPlan`, buffer by buffer. Admission never assumes a
formula: plans may be non-linear. Rule: if the configured cap fits, exactly the cap is admitted; otherwise the largest
multiple of 256 tokens that fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ..errors import BudgetExceeded, InvalidRequest

CONTEXT_GRID = 256


@attrs.frozen
class Buffer:
    """``count`` allocations of ``bytes`` each (alignment included), charged to ledger account ``account``."""

    name: str
    account: str
    bytes: int
    count: int = 1

    @property
    def total(self) -> int:
        return self.bytes * self.count


@attrs.frozen
class AllocationPlan:
    """What a backend will allocate.

    ``max_buffer`` is the device's largest single allocation in bytes, and ``max_buffers`` how many allocations it
    leaves to plans, if it has such limits.
    """

    buffers: tuple[Buffer, ...]
    max_buffer: int | None = None
    max_buffers: int | None = None

    @property
    def total(self) -> int:
        return sum(buffer.total for buffer in self.buffers)

    @property
    def allocations(self) -> int:
        return sum(buffer.count for buffer in self.buffers)

    def by_account(self) -> dict[str, int]:
        """Bytes per ledger account."""
        accounts: dict[str, int] = {}
        for buffer in self.buffers:
            accounts[buffer.account] = accounts.get(buffer.account, 0) + buffer.total
        return accounts

    def oversized(self) -> Buffer | None:
        """The first buffer that is larger than the device can allocate in one piece."""
        if self.max_buffer is None:
            return None
        return next((buffer for buffer in self.buffers if buffer.bytes > self.max_buffer), None)

    def too_many(self) -> bool:
        """Whether the device has fewer allocations than the plan needs."""
        return self.max_buffers is not None and self.allocations > self.max_buffers

    def missing(self, available: int) -> int:
        """Bytes that ``available`` lacks; 0 when the plan fits."""
        return max(0, self.total - available)


PlanFor: TypeAlias = Callable[[int], AllocationPlan]


@attrs.frozen
class Admission:
    """The admitted context in tokens and the plan that admitted it; ``capped`` when it is the configured cap."""

    context: int
    plan: AllocationPlan
    capped: bool


def fits(plan: AllocationPlan, available: int) -> bool:
    """Whether every buffer can be allocated and all of them together fit, in bytes and in number."""
    return plan.oversized() is None and not plan.too_many() and plan.missing(available) == 0


def admit_context(cap: int, plan_for: PlanFor, available: int, what: str = "model") -> Admission:
    """Find the context that fits ``available`` bytes.

    Candidates are tried from the cap downwards, so a plan that is not monotone still gets its largest fitting context.

    Raises:
        InvalidRequest: the cap is not positive.
        BudgetExceeded: not even the smallest candidate fits; carries what it asks for and what was available, in bytes
            or in allocations.
    """
    if cap <= 0:
        raise InvalidRequest(f"context of {what} is {cap}: it must be a positive number of tokens", context=cap)
    plan = plan_for(cap)
    if fits(plan, available):
        return Admission(cap, plan, capped=True)
    for context in range((cap - 1) // CONTEXT_GRID * CONTEXT_GRID, 0, -CONTEXT_GRID):
        plan = plan_for(context)
        if fits(plan, available):
            return Admission(context, plan, capped=False)
    raise _refused(plan, available, what, min(cap, CONTEXT_GRID))


def _refused(plan: AllocationPlan, available: int, what: str, context: int) -> BudgetExceeded:
    """Why the smallest candidate does not fit."""
    if plan.missing(available) == 0:
        oversized = plan.oversized()
        if oversized is not None:
            return BudgetExceeded(
                f"buffer {oversized.name} of {what}",
                oversized.bytes,
                plan.max_buffer or 0,
                "the device cannot allocate it in one piece at any context; use a smaller model or another device",
            )
        return BudgetExceeded(
            f"{what} with a context of {context} tokens",
            plan.allocations,
            plan.max_buffers or 0,
            "the device allows no more at once; use fewer slots, a smaller model or another device",
            unit="allocations",
        )
    return BudgetExceeded(
        f"{what} with a context of {context} tokens",
        plan.total,
        available,
        "enlarge the partition, lower the workspace, retained bytes or slots, or use a smaller model",
    )
