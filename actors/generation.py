"""The generation actor: sequences, chunked prefill on the grid, decode runs, prefix reuse, preparation, cancellation.

Stage: clients submit here; steps go to the device controller; ends go back to clients. Rule 1: a prompt is never cut;
too long is refused with the numbers. Rule 2: at most one step of a sequence is on its way, and at most one decode run
of a class: sequences that become ready meanwhile join the next run. Rule 3: cancellation keeps the chunks that
completed. Rule 4: every accepted request ends exactly once. Rule 5: preparation gives way (``preparing.py``).
"""

from __future__ import annotations

from ..policies.views import WorkClass
from .checkpointing import Checkpointer
from .effects import CancelTimer, Effect, Notify, Report, Send, SetTimer
from .errors import Closed, ContextExceeded, CoresidentError, InvalidRequest, Overloaded
from .events import Accepted, GenerationEnded, PolicyFaulted, PreparationAdvanced, Refused
from .messages import (
    Available,
    Cancel,
    Close,
    Drained,
    Expire,
    FetchPrefix,
    Message,
    PinConversation,
    ReleaseConversation,
    Settled,
    StepDone,
    StorePrefix,
    SubmitGeneration,
    SubmitPreparation,
    SubmitStep,
    Unavailable,
    Wake,
)
from .placing import PlacingRunner
from .sequences import Ending, GenerationSetup, GenerationStatistics, Sequence, new_sequence, refusal


class GenerationActor(PlacingRunner):
    """Requests and preparations of one generation model. See the module's rules."""

    def __init__(self, setup: GenerationSetup, name: str = "generation", device: str = "device") -> None:
        super().__init__(setup, name, device)
        self._unavailable: CoresidentError | None = None
        self._closing = False
        self._owed = 0
        self._files = Checkpointer(setup, name, device, self._kv, self._make.pace)
        self._counts = dict.fromkeys(("completed", "cancelled", "failed", "refused", "prepared"), 0)

    def handle(self, message: Message, at: int) -> list[Effect]:
        """Take one message; the effects in order."""
        self._out = []
        match message:
            case StepDone(step) if self._files.runs(step):
                self._out += self._files.step_done(message)
                if message.settle:
                    self._out.append(Send(self._device, Settled(step, tuple(self._next_steps(at)))))
            case StepDone():
                self._step_done(message, at)
            case SubmitGeneration():
                self._submit(message, at)
            case SubmitPreparation():
                self._submit_preparation(message, at)
            case PinConversation(conversation, pinned):
                self._kv.pin(conversation, pinned)
            case ReleaseConversation(conversation):
                self._out += self._kv.release_conversation(conversation)
            case StorePrefix() | FetchPrefix():
                self._begin_file(message, at)
            case Cancel(request, reason) if request in self._files:
                self._out += self._files.stop(request, reason)
            case Cancel(request, reason):
                self._stop(request, Ending("cancelled", reason), at)
            case Expire(request):
                self._stop(request, Ending("cancelled", "deadline"), at)
            case Available():
                self._available, self._unavailable, self._restarting = True, None, False
                self._prepare.quiet_since = at
            case Unavailable(error, restart):
                self._lose(error, restart, at)
            case Close():
                self._close(at)
            case Wake():
                self._wakes = None
            case _:
                raise TypeError(f"the generation actor does not take {type(message).__name__}")
        if not (isinstance(message, StepDone) and message.settle):
            self._out += [Send(self._device, SubmitStep(step)) for step in self._next_steps(at)]
        self._out += self._files.advance(at)
        self._report_faults()
        if self._owed and self._is_drained():
            self._tell_drained()
        return self._out

    def statistics(self) -> GenerationStatistics:
        """A frozen view of the actor."""
        queued = sum(sequence.life.state == "queued" for sequence in self._open.values())
        return GenerationStatistics(
            open=len(self._open) + len(self._files),
            queued=queued,
            slots=self._kv.free_slots,
            prefixes=self._kv.prefixes.statistics(),
            **self._counts,
        )

    def waits(self) -> dict[str, str]:
        """What every open request waits for, in words."""
        slots = f"a KV slot ({self._kv.free_slots} of {self._kv.slots} are free)"
        return {
            request: f"{s.life.state}, waiting for {s.step or (slots if s.slot is None else 'a step')}"
            for request, s in self._open.items()
        }

    # --- admission ----------------------------------------------------------------------------------------------

    def _submit(self, spec: SubmitGeneration, at: int) -> None:
        error = self._unavailable or self._clash(spec.request) or refusal(spec, self._setup, self._open)
        if error is not None:
            self._refuse(spec.request, error)
            return
        if all(s.prepares or s.life.state == "saving" for s in self._open.values()):
            self._prepare.quiet_ends(at)
        self._open[spec.request] = new_sequence(spec, at)
        self._out.append(Notify(Accepted(spec.request, spec.work_class)))
        if spec.deadline is not None:
            self._out.append(SetTimer(spec.request, spec.deadline, self.name, Expire(spec.request)))

    def _submit_preparation(self, spec: SubmitPreparation, at: int) -> None:
        error = self._unavailable or self._clash(spec.request)
        if error is None and not 0 <= spec.standing <= len(spec.tokens):
            error = InvalidRequest(f"standing {spec.standing}: give 0 to {len(spec.tokens)}, the tokens there are")
        if error is None and len(spec.tokens) > self._setup.context:
            error = ContextExceeded(len(spec.tokens), 0, self._setup.context)
        if error is None and len(self._prepare) >= self._setup.queue:
            error = Overloaded(
                f"{len(self._prepare)} preparations are open, the limit is {self._setup.queue}: cancel one",
                open=len(self._prepare),
                limit=self._setup.queue,
            )
        if error is not None:
            self._refuse(spec.request, error)
            return
        self._out.append(Notify(Accepted(spec.request, WorkClass.PREPARATION)))
        job = self._prepare.add(spec, at)
        self._open[spec.request] = job.sequence
        for older in self._prepare.superseded_by(spec):
            if not self._take_over(older.sequence, job.sequence, "superseded", at):
                wasted = self._prepare.unshared(older, job)
                self._stop(older.spec.request, Ending("superseded", "", wasted=wasted), at)

    def _clash(self, request: str) -> CoresidentError | None:
        """Ids are unique among all that is open here: requests, preparations and files."""
        if request in self._open or request in self._files:
            return InvalidRequest(f"request {request} is already open: use a new id")
        return None

    def _begin_file(self, message: StorePrefix | FetchPrefix, at: int) -> None:
        try:
            if (clash := self._clash(message.request)) is not None:
                raise clash
            if not self._available:
                raise self._unavailable or InvalidRequest("the model is not loaded yet: wait until it is ready")
            self._out += self._files.begin(message, at)
        except CoresidentError as error:
            self._refuse(message.request, error)

    def _refuse(self, request: str, error: CoresidentError) -> None:
        self._counts["refused"] += 1
        self._out.append(Notify(Refused(request, error)))

    # --- ends ---------------------------------------------------------------------------------------------------

    def _chunk_done(self, sequence: Sequence, at: int) -> None:
        if not sequence.prepares:
            return
        goal = len(sequence.spec.prompt)
        self._out.append(Notify(PreparationAdvanced(sequence.request, sequence.position, goal)))
        if sequence.position == goal:
            self._end(sequence, Ending("prepared", ""), at)

    def _stop(self, request: str, ending: Ending, at: int) -> None:
        sequence = self._open.get(request)
        if sequence is not None and sequence.prepares:
            if sequence.life.state == "saving":
                self._tell(sequence, ending, at)
                return
            if sequence.ending is not None and sequence.ending.outcome == "yielded":
                sequence.ending = ending
                return
        super()._stop(request, ending, at)

    def _tell(self, sequence: Sequence, ending: Ending, at: int) -> None:
        if sequence.prepares:
            if ending.outcome != "yielded" and sequence.request in self._prepare:
                end = self._prepare.end(sequence.request, ending.outcome, ending.wasted, ending.error)
                self._counts["prepared"] += end.computed
                self._out.append(Notify(end))
            return
        self._prepare.quiet_since = at
        self._counts[ending.outcome] += 1
        if sequence.spec.deadline is not None:
            self._out.append(CancelTimer(sequence.request))
        self._out.append(
            Notify(
                GenerationEnded(
                    request=sequence.request,
                    outcome=ending.outcome,
                    reason=ending.reason,
                    prompt=len(sequence.spec.prompt),
                    reused=sequence.reused,
                    prefilled=sequence.prefilled,
                    tokens=len(sequence.generated),
                    error=ending.error,
                )
            )
        )

    def _left(self, sequence: Sequence, at: int) -> None:
        """A preparation that made way comes back; after a loss, or at the end, it fails."""
        if not sequence.prepares or sequence.request not in self._prepare:
            return
        if self._available or self._restarting:
            self._open[sequence.request] = self._prepare.again(sequence, at)
        else:
            error = self._unavailable
            self._tell(sequence, Ending("failed", type(error).__name__, error), at)

    def _lose(self, error: CoresidentError, restart: bool, at: int) -> None:
        """The device is gone, and all KV state with it. Where it comes back by itself, requests may wait for that."""
        self._available, self._restarting, self._unavailable = False, restart, None if restart else error
        self._wake_at(None)
        self._owed += 1
        self._out += self._files.fail_all(error)
        self._fail_all(error, at, restart)
        self._out += self._kv.forget_all("invalidated", lost=True)

    def _close(self, at: int) -> None:
        self._closing, self._available, self._restarting = True, False, False
        self._wake_at(None)
        self._unavailable = Closed("the scheduler is closing: nothing new is accepted")
        self._owed += 1
        self._out += self._files.fail_all(self._unavailable)
        self._fail_all(self._unavailable, at)

    def _is_drained(self) -> bool:
        waiting = all(s.life.state == "queued" and s.slot is None for s in self._open.values())
        return waiting and not self._steps and not self._files

    def _tell_drained(self) -> None:
        """Answer every ``Unavailable`` and ``Close``: nothing of this actor is on the device."""
        if self._closing:
            self._out += self._kv.forget_all("closed", lost=False)
        self._out += [Send("supervisor", Drained(self.name))] * self._owed
        self._owed = 0

    def _report_faults(self) -> None:
        for policy, holder in (
            ("quantum", self._make),
            ("retention", self._kv.prefixes),
            ("preparation", self._prepare),
        ):
            fault = holder.policy.take_fault()
            if fault is not None:
                self._out.append(Report(PolicyFaulted(policy, fault)))
