"""The device controller: one per physical device. It owns the ledger and the order of steps.

Rule 1: one grant at a time. Rule 2: workspace is charged before a step is granted and returned when it ends; a
suspended chunk keeps its charge. Rule 3: when a step has ended, its owner is heard (``Settled``) before the device
chooses again, so the policy always sees what everybody wants. Rule 4: running work is told to yield when the policy
would choose something else; it does so after its segment. Rule 5: a policy that misbehaves is replaced.

Neighbours: model actors submit steps, the executor ends grants, the supervisor hears of faults.
"""

from __future__ import annotations

from ..policies.errors import PolicyFault
from ..policies.views import Choice, Ordering, OrderingView
from .choosing import Chooser
from .effects import AskYield, DropSuspended, Effect, Report, RunGrant, Send
from .errors import Closed, CoresidentError, DeviceLost
from .events import ChargeExceeded, Granted, PolicyFaulted, Released, YieldAsked
from .lifecycle import Lifecycle
from .memory.ledger import WORKSPACE, Ledger
from .messages import (
    Close,
    DeviceFault,
    Discharge,
    Failed,
    Finished,
    GrantEnded,
    Message,
    PromoteStep,
    ResetDevice,
    Settled,
    StepDone,
    StepRefused,
    SubmitStep,
    Suspended,
    Withdrawn,
    WithdrawStep,
)
from .queue import DeviceStatistics, Pending, StepQueue, hold, ledger_changed, unhold
from .work import Grant, Measured, StepKind, StepRequest, shape_of


class DeviceController:
    """Admission to one device. See the module's rules."""

    def __init__(
        self,
        ledger: Ledger,
        ordering: Ordering,
        supervisor: str = "supervisor",
        name: str = "device",
        yield_ns: int = 25_000_000,
    ) -> None:
        self.name = name
        self._ledger = ledger
        self._chooser = Chooser(ordering)
        self._supervisor = supervisor
        self._life = Lifecycle("device", name, "idle")
        self._queue = StepQueue()
        self._running: Pending | None = None
        self._grant = 0
        self._lost: CoresidentError | None = None
        self._yield_ns = yield_ns
        self._counts = dict.fromkeys(("yields", "suspensions", "drops", "exceeded", "slow_grants"), 0)
        self._longest = 0
        self._out: list[Effect] = []

    def handle(self, message: Message, at: int) -> list[Effect]:
        """Take one message; the effects in order."""
        self._out = []
        match message:
            case SubmitStep(step):
                self._submit(step, at)
                self._choose(at)
            case GrantEnded(grant, outcome):
                self._ended(grant, outcome, at)
            case Settled(_, steps):
                self._life.to("settle")
                for step in steps:
                    self._submit(step, at)
                self._choose(at)
            case WithdrawStep(step):
                self._withdraw(step)
                self._choose(at)
            case PromoteStep():
                self._queue.promote(message)
                self._choose(at)
            case Discharge(account, owner, amount):
                self._ledger.discharge(account, owner, amount)
            case ResetDevice():
                if self._life.can("reset"):
                    self._life.to("reset")
                    self._lost = None
            case Close():
                self._close()
            case _:
                raise TypeError(f"the device controller does not take {type(message).__name__}")
        return self._out

    def statistics(self) -> DeviceStatistics:
        """A frozen view of the controller."""
        return DeviceStatistics(
            state=self._life.state,
            waiting=len(self._queue) - (self._running is not None),
            grants=self._grant,
            policy_faults=self._chooser.faults,
            longest_segment_ns=self._longest,
            ledger=self._ledger.statistics(),
            **self._counts,
        )

    def _submit(self, step: StepRequest, at: int) -> None:
        if (refusal := self._lost or hold(self._ledger, step)) is not None:
            self._out.append(Send(step.owner, StepDone(step.step, StepRefused(refusal), settle=False)))
            return
        self._queue.add(step, at)
        if step.reserves:
            self._report_ledger()

    def _choose(self, at: int) -> None:
        """Grant when idle; ask running work to yield when the policy would rather run something else."""
        if self._life.state == "idle":
            self._grant_next(at)
        if self._life.state != "running" or self._running is None or len(self._queue) == 1:
            return
        waiting = self._queue.waiting()
        running, free = self._queue.view(self._running), self._ledger.available(WORKSPACE)
        view = OrderingView(at, waiting, running, free, self._queue.free_since)
        choice = self._decide(view)
        if choice.step != self._running.step.step:
            self._ask_yield(self._running, choice.step)

    def _grant_next(self, at: int) -> None:
        waiting = self._queue.waiting()
        if not waiting:
            return
        view = OrderingView(at, waiting, None, self._ledger.available(WORKSPACE), self._queue.free_since)
        choice = self._decide(view)
        for step in choice.drop:
            self._drop(step)
        pending = self._queue.get(choice.step)
        if pending is None:
            raise PolicyFault(f"ordering chose {choice.step}, which is not waiting")
        self._run(pending, at)

    def _decide(self, view: OrderingView) -> Choice:
        choice, fault = self._chooser.choose(view)
        if fault is not None:
            self._out.append(Report(PolicyFaulted("ordering", fault)))
        return choice

    def _run(self, pending: Pending, at: int) -> None:
        resumed = pending.suspended
        step = pending.step
        if not resumed:
            self._ledger.charge(WORKSPACE, step.step, step.charge)
        pending.life.to("grant")
        self._life.to("grant")
        pending.grant = self._grant = self._grant + 1
        self._running = pending
        granted = Granted(
            grant=self._grant,
            step=step.step,
            owner=step.owner,
            request=step.request,
            work_class=step.work_class,
            kind=step.work.kind,
            shape=shape_of(step.work),
            charge=step.charge,
            resumed=resumed,
            waited_ns=at - pending.submitted,
        )
        self._out.append(Report(granted))
        self._out.append(RunGrant(Grant(self._grant, step, resumed)))

    def _ask_yield(self, pending: Pending, to: str | None) -> None:
        self._life.to("yield")
        self._counts["yields"] += 1
        self._out.append(AskYield(self._grant, give_up=pending.withdrawn))
        self._out.append(Report(YieldAsked(self._grant, pending.step.step, to)))

    def _ended(self, grant: int, outcome: Finished | Suspended | Failed | Withdrawn, at: int) -> None:
        pending = self._running
        if pending is None or grant != self._grant:
            return
        self._running = None
        self._queue.segment_ended(pending.step.work_class, at)
        measured = None if isinstance(outcome, Failed) else outcome.measured
        if measured is not None:
            self._check_measured(pending, measured)
        match outcome:
            case Suspended(used):
                self._suspended(pending, used, at)
            case Failed(sticky=True):
                self._report_end(pending, "failed", None)
                self._fault(pending, outcome)
            case _:
                self._settle(pending, outcome, measured)

    def _suspended(self, pending: Pending, measured: Measured, at: int) -> None:
        self._life.to("suspend")
        pending.life.to("suspend")
        self._counts["suspensions"] += 1
        self._report_end(pending, "suspended", measured)
        if pending.withdrawn:
            self._withdraw(pending.step.step)
        self._choose(at)

    def _settle(self, pending: Pending, outcome: Finished | Failed | Withdrawn, measured: Measured | None) -> None:
        self._life.to("end")
        pending.life.to("end")
        self._queue.remove(pending.step.step)
        self._ledger.discharge(WORKSPACE, pending.step.step)
        if not isinstance(outcome, Finished):
            self._unhold(pending.step)
        self._report_end(pending, type(outcome).__name__.lower(), measured)
        self._out.append(Send(pending.step.owner, StepDone(pending.step.step, outcome, True, self._queue.decisions)))

    def _check_measured(self, pending: Pending, measured: Measured) -> None:
        if pending.step.work.kind not in (StepKind.LOAD, StepKind.WARMUP):
            self._longest = max(self._longest, measured.longest_segment_ns)
            self._counts["slow_grants"] += measured.longest_segment_ns > self._yield_ns
        if measured.workspace > pending.step.charge:
            self._counts["exceeded"] += 1
            self._out.append(Report(ChargeExceeded(pending.step.step, pending.step.charge, measured.workspace)))

    def _withdraw(self, name: str) -> None:
        pending = self._queue.get(name)
        if pending is None:
            return
        if pending is self._running:
            if not pending.withdrawn:
                pending.withdrawn = True
                if self._life.state == "running":
                    self._ask_yield(pending, None)
                else:
                    self._out.append(AskYield(self._grant, give_up=True))
            return
        if pending.suspended:
            self._out.append(DropSuspended(name))
            self._ledger.discharge(WORKSPACE, name)
            self._report_end(pending, "withdrawn", None)
        pending.life.to("withdraw")
        self._queue.remove(name)
        self._unhold(pending.step)
        self._out.append(Send(pending.step.owner, StepDone(name, Withdrawn(), settle=False)))

    def _drop(self, name: str) -> None:
        """Give a suspended chunk's workspace up; the chunk starts again later, and is never dropped twice."""
        pending = self._queue.get(name)
        if pending is None:
            raise PolicyFault(f"ordering dropped {name}, which is not waiting")
        pending.life.to("drop")
        pending.drops += 1
        self._counts["drops"] += 1
        self._ledger.discharge(WORKSPACE, name)
        self._out.append(DropSuspended(name))
        self._report_end(pending, "dropped", None)

    def _fault(self, running: Pending, failed: Failed) -> None:
        """The device is gone: every step ends with the error, every charge is returned.

        The supervisor hears it first: nobody is told of a failed request while the readiness says ready.
        """
        self._life.to("fault")
        error = failed.error
        if not isinstance(error, DeviceLost):
            error = DeviceLost(f"the device is lost: {error.message}; retry or repair")
        self._lost = error
        self._out.append(Send(self._supervisor, DeviceFault(error)))
        for pending in self._queue.all():
            if pending is running or pending.suspended:
                self._ledger.discharge(WORKSPACE, pending.step.step)
            if pending.suspended:
                self._out.append(DropSuspended(pending.step.step))
                self._report_end(pending, "failed", None)
            pending.life.to("end" if pending is running else "fault")
            self._queue.remove(pending.step.step)
            self._unhold(pending.step)
            outcome = Failed(error, True, failed.shown) if pending is running else StepRefused(error)
            self._out.append(Send(pending.step.owner, StepDone(pending.step.step, outcome, settle=False)))

    def _close(self) -> None:
        """Everything is unloaded: every reservation goes back."""
        self._life.to("close")
        self._lost = Closed("the device is closed")
        accounts = self._ledger.statistics().accounts
        self._ledger.release({name: account.reserved for name, account in accounts.items()})
        self._report_ledger()

    def _unhold(self, step: StepRequest) -> None:
        unhold(self._ledger, step)
        if step.reserves:
            self._report_ledger()

    def _report_end(self, pending: Pending, outcome: str, measured: Measured | None) -> None:
        self._out.append(Report(Released(pending.grant, pending.step.step, outcome, measured)))

    def _report_ledger(self) -> None:
        self._out.append(Report(ledger_changed(self._ledger)))
