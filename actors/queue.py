"""Steps that want the device, and what the ordering policy is shown of them.

A pending step is waiting, granted or suspended. ``passed`` in its view is true once a segment of less urgent work has
ended after its request arrived: that is the one segment an urgent request may wait for.
"""

from __future__ import annotations

import attrs

from ..policies.views import StepView, WorkClass
from .errors import BudgetExceeded
from .events import LedgerChanged
from .lifecycle import Lifecycle
from .memory.ledger import WORKSPACE, Ledger, LedgerStatistics
from .messages import PromoteStep
from .work import StepRequest


@attrs.define
class Pending:
    """One step from its submission to its end; ``grant`` is the number of its latest grant."""

    step: StepRequest
    submitted: int
    life: Lifecycle
    drops: int = 0
    withdrawn: bool = False
    grant: int = 0

    @property
    def suspended(self) -> bool:
        return self.life.state == "suspended"


class StepQueue:
    """The steps of one device that have not ended, and when each class last had a segment.

    ``free_since`` is when the last grant ended; ``decisions`` counts the decision requests that have asked.
    """

    def __init__(self) -> None:
        self.free_since = 0
        self.decisions = 0
        self._pending: dict[str, Pending] = {}
        self._segment_ended: dict[WorkClass, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, step: StepRequest, at: int) -> Pending:
        since = at if step.since is None else min(at, step.since)
        pending = Pending(step, since, Lifecycle("step", step.step, "waiting"))
        self._pending[step.step] = pending
        self.decisions += step.work_class is WorkClass.DECISION and not step.started
        return pending

    def get(self, step: str) -> Pending | None:
        return self._pending.get(step)

    def promote(self, message: PromoteStep) -> None:
        """Give a step to more urgent work; one that has ended is no error."""
        pending = self._pending.get(message.step)
        if pending is not None:
            pending.step = attrs.evolve(
                pending.step,
                request=message.request,
                work_class=message.work_class,
                request_arrived=message.arrived,
            )

    def remove(self, step: str) -> None:
        del self._pending[step]

    def all(self) -> list[Pending]:
        return list(self._pending.values())

    def segment_ended(self, work_class: WorkClass, at: int) -> None:
        """Remember that work of this class has just had the device."""
        self._segment_ended[work_class] = self.free_since = at

    def view(self, pending: Pending) -> StepView:
        """What the policy sees of a step."""
        step = pending.step
        passed = False
        for work_class, ended in self._segment_ended.items():
            passed = passed or (work_class > step.work_class and ended > step.request_arrived)
        return StepView(
            step.step,
            step.request,
            step.work_class,
            pending.submitted,
            step.request_arrived,
            step.charge,
            step.bound_ns,
            step.deadline,
            pending.suspended,
            step.started,
            passed,
            pending.drops,
            step.remaining_ns,
        )

    def waiting(self) -> tuple[StepView, ...]:
        """Views of everything that could run next, oldest first."""
        return tuple([self.view(p) for p in self._pending.values() if p.life.state != "granted"])


def hold(ledger: Ledger, step: StepRequest) -> BudgetExceeded | None:
    """Take what a step must hold before it may even wait; the error when that can't be had."""
    budget = ledger.budget(WORKSPACE)
    if step.charge > budget:
        return BudgetExceeded(
            f"workspace of step {step.step} ({step.work.kind.value})",
            step.charge,
            budget,
            "enlarge the workspace budget, or use smaller chunks, rows or contexts",
        )
    if not step.reserves and step.keeps is None:
        return None
    reserves = dict(step.reserves)
    try:
        ledger.reserve(reserves)
    except BudgetExceeded as error:
        return error
    try:
        if step.keeps is not None:
            ledger.charge(*step.keeps)
    except BudgetExceeded as error:
        ledger.release(reserves)
        return error
    return None


def unhold(ledger: Ledger, step: StepRequest) -> None:
    """A step that did not finish keeps nothing."""
    if step.keeps is not None:
        account, owner, _ = step.keeps
        ledger.discharge(account, owner)
    ledger.release(dict(step.reserves))


def ledger_changed(ledger: Ledger) -> LedgerChanged:
    """The ledger's sums, for observers."""
    view = ledger.statistics()
    used = sum(account.used for account in view.accounts.values())
    workspace = ledger.budget(WORKSPACE) - ledger.available(WORKSPACE)
    return LedgerChanged(view.reserved, used, workspace, view.partition)


@attrs.frozen
class DeviceStatistics:
    """Counts since the start; ``exceeded`` are steps that measured more than their charge.

    Loads and warm-ups aside, ``longest_segment_ns`` is the longest segment, and ``slow_grants`` are those that had one
    longer than the time in which running work should be able to yield.
    """

    state: str
    waiting: int
    grants: int
    yields: int
    suspensions: int
    drops: int
    exceeded: int
    slow_grants: int
    policy_faults: int
    longest_segment_ns: int
    ledger: LedgerStatistics
