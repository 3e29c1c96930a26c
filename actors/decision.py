"""The decision actor: bounded requests, one after another, whole.

Rule 1: a request is bounded when it is accepted: rows, tokens and heads. Rule 2: the oldest request runs to its end
before the next begins; its slices follow each other. Rule 3: the instruction's KV state stays in the slots until
another instruction is asked for. Rule 4: a decision that cannot be answered honestly abstains, with the reason:
``deadline``, ``unavailable``, ``uncertain`` or ``over_budget``. Rule 5: a score that is not finite is a failure,
never an answer.
"""

from __future__ import annotations

import math

from ..policies.abstention.deadline import deadline
from ..policies.errors import PolicyFault
from ..policies.views import AbstentionView, WorkClass
from .effects import CancelTimer, Effect, Notify, Report, Send, SetTimer
from .errors import BackendFault, BudgetExceeded, Closed, CoresidentError, DeviceLost
from .events import Accepted, DecisionEnded, HeadScores, PolicyFaulted, Refused
from .guard import Guarded
from .lifecycle import Lifecycle
from .messages import (
    Available,
    Cancel,
    Close,
    Drained,
    Expire,
    Failed,
    Finished,
    Message,
    Settled,
    StepDone,
    StepRefused,
    SubmitDecision,
    SubmitStep,
    Unavailable,
    WithdrawStep,
)
from .scoring import DecisionSetup, DecisionStatistics, finish, refusal
from .slices import Decision, SliceMaker
from .work import RowScores, StepRequest

_LOST = "lost"


class DecisionActor:
    """Requests of one decision model. See the module's rules."""

    def __init__(self, setup: DecisionSetup, name: str = "decision", device: str = "device") -> None:
        self.name = name
        self._setup = setup
        self._device = device
        self._abstention = Guarded("abstention", setup.abstention, deadline)
        self._slices = SliceMaker(setup, name)
        self._open: dict[str, Decision] = {}
        self._step: StepRequest | None = None
        self._available = False
        self._restarting = False
        self._unavailable: CoresidentError | None = None
        self._closing = False
        self._owed = 0
        self._counts = dict.fromkeys(("completed", "abstained", "cancelled", "failed", "refused"), 0)
        self._out: list[Effect] = []

    def handle(self, message: Message, at: int) -> list[Effect]:
        """Take one message; the effects in order."""
        self._out = []
        match message:
            case SubmitDecision():
                self._submit(message, at)
            case Cancel(request, reason):
                self._stop(request, ("cancelled", reason, None))
            case Expire(request):
                self._stop(request, ("abstained", "deadline", None))
            case StepDone():
                self._step_done(message, at)
            case Available():
                self._available, self._restarting, self._unavailable = True, False, None
            case Unavailable(error, restart):
                self._available, self._restarting, self._unavailable = False, restart, error
                self._owed += 1
                self._slices.invalidate()
                self._stop_all((_LOST if restart else "abstained", "unavailable", error))
            case Close():
                self._closing, self._available, self._restarting = True, False, False
                self._owed += 1
                self._unavailable = Closed("the scheduler is closing: nothing new is accepted")
                self._stop_all(("failed", "Closed", self._unavailable))
            case _:
                raise TypeError(f"the decision actor does not take {type(message).__name__}")
        if not (isinstance(message, StepDone) and message.settle):
            self._out += [Send(self._device, SubmitStep(step)) for step in self._next_steps(at)]
        if self._step is None and all(decision.life.state == "queued" for decision in self._open.values()):
            self._out += [Send("supervisor", Drained(self.name))] * self._owed
            self._owed = 0
        return self._out

    def statistics(self) -> DecisionStatistics:
        """A frozen view of the actor."""
        return DecisionStatistics(open=len(self._open), instructions=self._slices.instructions, **self._counts)

    def waits(self) -> dict[str, str]:
        """What every open request waits for, in words."""
        step = f"{self._step.step} of {self._step.request}" if self._step else "a step"
        return {request: f"{d.life.state}, waiting for {step}" for request, d in self._open.items()}

    # --- admission ----------------------------------------------------------------------------------------------

    def _submit(self, spec: SubmitDecision, at: int) -> None:
        error = self._unavailable if self._closing else refusal(spec, self._setup, self._open)
        if error is not None:
            self._counts["refused"] += 1
            self._out.append(Notify(Refused(spec.request, error)))
            return
        decision = Decision(spec, at, Lifecycle("decision", spec.request, "queued"))
        self._open[spec.request] = decision
        self._out.append(Notify(Accepted(spec.request, WorkClass.DECISION)))
        if not self._available and not self._restarting:
            self._end(decision, "abstained", "unavailable", self._unavailable)
            return
        reason = self._abstain(decision, "accepted", at)
        if reason is not None:
            self._end(decision, "abstained", reason)
        elif spec.deadline is not None:
            self._out.append(SetTimer(spec.request, spec.deadline, self.name, Expire(spec.request)))

    def _abstain(self, decision: Decision, stage: str, at: int, scores: tuple[HeadScores, ...] = ()) -> str | None:
        """Ask the abstention policy; its faults end it, not the request."""
        ahead = [d for d in self._open.values() if d is not decision] if stage == "accepted" else []
        remaining = sum(self._slices.remaining(d) for d in (*ahead, decision))
        view = AbstentionView(at, stage, decision.spec.deadline, remaining, tuple((s.kind, s.values) for s in scores))
        reason = self._abstention.ask(view, _check_reason)
        fault = self._abstention.take_fault()
        if fault is not None:
            self._out.append(Report(PolicyFaulted("abstention", fault)))
        return reason

    def _stop_all(self, ending: tuple[str, str, CoresidentError | None]) -> None:
        for request in list(self._open):
            self._stop(request, ending)

    # --- what comes next ----------------------------------------------------------------------------------------

    def _next_steps(self, at: int) -> list[StepRequest]:
        """The next step of the oldest request; requests that may no longer be answered end on the way."""
        while self._available and self._step is None and self._open:
            decision = next(iter(self._open.values()))
            reason = self._abstain(decision, "slice", at)
            if reason is not None:
                self._end(decision, "abstained", reason)
                continue
            self._step = self._slices.next_step(decision)
            return [self._step]
        return []

    # --- ends ---------------------------------------------------------------------------------------------------

    def _step_done(self, done: StepDone, at: int) -> None:
        step, self._step = self._step, None
        if step is None or step.step != done.step:
            raise RuntimeError(f"{done.step} ended, which is not the decision step on its way")
        decision = self._open[step.request]
        match done.outcome:
            case Finished(result, measured):
                self._slices.finished(decision, step.work, measured.step_ns)
                self._scored(decision, result.scores, at)
            case Failed(DeviceLost() as error) | StepRefused(DeviceLost() as error):
                self._slices.invalidate()
                stopped = decision.ending is not None and decision.ending[0] != _LOST
                if stopped or not self._run_again(decision, isinstance(done.outcome, Failed)):
                    self._end(decision, "abstained", "unavailable", error)
            case StepRefused(BudgetExceeded() as error):
                self._end(decision, "abstained", "over_budget", error)
            case Failed(error) | StepRefused(error):
                self._slices.invalidate()
                self._end(decision, "failed", type(error).__name__, error)
        if decision.ending is not None and decision.life.state != "ended":
            self._end(decision, *decision.ending)
        if done.settle:
            self._out.append(Send(self._device, Settled(done.step, tuple(self._next_steps(at)))))

    def _scored(self, decision: Decision, scores: tuple[RowScores, ...], at: int) -> None:
        for row in scores:
            if not all(math.isfinite(value) for value in row.values):
                error = BackendFault(f"row {row.index} of {decision.spec.request} scored {row.values}: not finite")
                self._end(decision, "failed", "BackendFault", error)
                return
            decision.raw[row.index] = row.values
        if decision.missing() or not scores:
            return
        raw = [decision.raw[index] for index in range(len(decision.spec.rows))]
        finished = tuple(
            finish(head, self._setup.heads[head], [values[column] for values in raw])
            for column, head in enumerate(decision.spec.heads)
        )
        reason = self._abstain(decision, "scored", at, finished)
        if reason is None:
            self._end(decision, "completed", "", scores=finished)
        else:
            self._end(decision, "abstained", reason)

    def _stop(self, request: str, ending: tuple[str, str, CoresidentError | None]) -> None:
        """End a request early: at once when nothing of it is on the device, else when its step has ended."""
        decision = self._open.get(request)
        if decision is None or decision.ending is not None:
            return
        if self._step is None or self._step.request != request:
            self._end(decision, *ending)
            return
        decision.ending = ending
        self._out.append(Send(self._device, WithdrawStep(self._step.step)))

    def _run_again(self, decision: Decision, ran: bool) -> bool:
        """Put a request back to its beginning, for when there is a device again; one that ``ran`` may have lost it."""
        if not self._setup.reruns or decision.losses + ran > self._setup.reruns:
            return False
        self._available, self._restarting = False, True
        decision.life.to("end")
        queued = Lifecycle("decision", decision.spec.request, "queued")
        self._open[decision.spec.request] = Decision(
            decision.spec, decision.arrived, queued, losses=decision.losses + ran
        )
        return True

    def _end(
        self,
        decision: Decision,
        outcome: str,
        reason: str,
        error: CoresidentError | None = None,
        scores: tuple[HeadScores, ...] = (),
    ) -> None:
        """Tell the client, once; or none, where the request is run again."""
        if outcome == _LOST:
            if self._run_again(decision, decision.life.state != "queued"):
                return
            outcome = "abstained"
        decision.life.to("end")
        spec = decision.spec
        del self._open[spec.request]
        self._counts[outcome] += 1
        if spec.deadline is not None:
            self._out.append(CancelTimer(spec.request))
        self._out.append(
            Notify(
                DecisionEnded(
                    request=spec.request,
                    outcome=outcome,
                    reason=reason,
                    rows=len(spec.rows),
                    tokens=sum(map(len, spec.rows)),
                    instruction_reused=decision.instruction_reused,
                    scores=scores,
                    error=error,
                )
            )
        )


def _check_reason(reason: object) -> None:
    if not (reason is None or isinstance(reason, str)):
        raise PolicyFault(f"abstention gave {reason!r}: it answers a reason or None")
