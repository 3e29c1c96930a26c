"""Retained prefixes on their way to files and back.

Both are device steps that need no KV slot: storing reads retained storage, fetching fills it. Rule 1: what is being
saved is waited for, and what is being stored is not evicted meanwhile. Rule 2: the bytes of a fetch are reserved before
it runs, after the retention policy has made room. Rule 3: a fetched prefix is matched only once its step has finished,
which is when its file has been verified; nobody waits for it. Rule 4: every accepted request ends exactly once.
"""

from __future__ import annotations

import attrs

from ..policies.views import WorkClass
from .effects import Effect, Notify, Send
from .errors import ContextExceeded, CoresidentError, InvalidRequest, Overloaded
from .events import Accepted, CheckpointEnded
from .memory.entries import Entry
from .messages import Failed, FetchPrefix, Finished, StepDone, StepRefused, StorePrefix, SubmitStep, WithdrawStep
from .pace import Pace
from .retaining import Retainer
from .sequences import GenerationSetup
from .work import FetchWork, PrefixFile, StepKind, StepRequest, StoreWork


@attrs.define(eq=False)
class _Job:
    """A request whose step is on its way. ``ending`` is (outcome, reason, error) once it is to end early."""

    request: str
    step: StepRequest
    entry: Entry
    file: PrefixFile
    ending: tuple[str, str, CoresidentError | None] | None = None


class Checkpointer:
    """The files of one generation model; methods return effects for the actor to emit."""

    def __init__(self, setup: GenerationSetup, owner: str, device: str, kv: Retainer, pace: Pace) -> None:
        self._setup = setup
        self._owner = owner
        self._device = device
        self._kv = kv
        self._pace = pace
        self._count = 0
        self._waiting: dict[str, StorePrefix] = {}
        self._jobs: dict[str, _Job] = {}
        self._steps: dict[str, _Job] = {}

    def __len__(self) -> int:
        return len(self._jobs) + len(self._waiting)

    def __contains__(self, request: str) -> bool:
        return request in self._jobs or request in self._waiting

    def runs(self, step: str) -> bool:
        """Whether a step is one of these."""
        return step in self._steps

    def begin(self, message: StorePrefix | FetchPrefix, at: int) -> list[Effect]:
        """Accept a request and ask for the device.

        Raises:
            InvalidRequest: there is nothing to store, or what the file holds could never be reused.
            ContextExceeded, BudgetExceeded: the file's prefix does not fit the context or what may be retained.
            Overloaded: too many are on their way.
        """
        if len(self) >= self._setup.queue:
            raise Overloaded(f"{len(self)} prefixes are being stored or fetched: wait for one to end")
        if isinstance(message, FetchPrefix):
            effects = self._fetch(message.request, message.file, at)
        elif self._awaits(message):
            self._waiting[message.request] = message
            effects = []
        else:
            effects = self._store(message, at)
        return [Notify(Accepted(message.request, WorkClass.UTILITY)), *effects]

    def advance(self, at: int) -> list[Effect]:
        """Store what waited for a save that has ended."""
        effects: list[Effect] = []
        for message in [message for message in self._waiting.values() if not self._awaits(message)]:
            del self._waiting[message.request]
            try:
                effects += self._store(message, at)
            except InvalidRequest as error:
                effects.append(self._end_waiting(message, "failed", type(error).__name__, error))
        return effects

    def _awaits(self, message: StorePrefix) -> bool:
        return self._kv.prefixes.awaits(message.identity, message.tokens, whole=True)

    def _store(self, message: StorePrefix, at: int) -> list[Effect]:
        match = self._kv.prefixes.peek(message.identity, message.tokens, whole=True)
        entry = match.entry
        if entry is None:
            raise InvalidRequest(
                f"of this prompt of {len(message.tokens)} tokens nothing is retained that could be reused: generate or "
                "prepare with it first",
                tokens=len(message.tokens),
                matched=match.matched,
            )
        entry.users += 1
        tokens = message.tokens[: match.reused]
        aligned = min(entry.aligned, match.reused)
        file = PrefixFile(message.path, message.launch, message.identity, tokens, aligned, self._setup.chunk)
        return self._submit(message.request, StoreWork(self._setup.model, entry.handle, file), entry, at)

    def _fetch(self, request: str, file: PrefixFile, at: int) -> list[Effect]:
        count = len(file.tokens)
        if not count or count > self._setup.context:
            raise ContextExceeded(count, 0, self._setup.context)
        # Chunks of another size are not whole ones of this grid.
        aligned = file.aligned if file.chunk == self._setup.chunk else 0
        usable = self._kv.prefixes.usable_of(count, aligned, count)
        if usable == 0:
            raise InvalidRequest(
                f"{file.path} holds {count} tokens, {file.aligned} of them in whole chunks of {file.chunk}: reuse on "
                f"the grid takes whole chunks of {self._setup.chunk} only, so nothing of it can be used",
                tokens=count,
                aligned=file.aligned,
                chunk=file.chunk,
            )
        if self._kv.prefixes.peek(file.identity, file.tokens, whole=True).reused >= usable:
            return [self._end(request, file.path, count, "completed", "retained")]
        cost_ns = self._pace.estimate(StepKind.PREFILL, count)
        entry, made_room = self._kv.begin_fetch(file, aligned, cost_ns, at)
        return made_room + self._submit(request, FetchWork(self._setup.model, entry.handle, file), entry, at)

    def _submit(self, request: str, work: StoreWork | FetchWork, entry: Entry, at: int) -> list[Effect]:
        self._count += 1
        keeps = (self._setup.retained_account, f"prefix/{entry.handle}", entry.bytes)
        step = StepRequest(
            step=f"{self._owner}/file{self._count}",
            owner=self._owner,
            request=request,
            work_class=WorkClass.UTILITY,
            work=work,
            charge=0,
            bound_ns=self._pace.estimate(work.kind, len(work.file.tokens)),
            request_arrived=at,
            keeps=keeps if isinstance(work, FetchWork) else None,
        )
        self._jobs[request] = self._steps[step.step] = _Job(request, step, entry, work.file)
        return [Send(self._device, SubmitStep(step))]

    # --- ends ---------------------------------------------------------------------------------------------------

    def stop(self, request: str, reason: str) -> list[Effect]:
        """The client no longer wants a request; one that is ending already is no error."""
        if request in self._waiting:
            return [self._end_waiting(self._waiting.pop(request), "cancelled", reason)]
        return self._withdraw(self._jobs[request], ("cancelled", reason, None))

    def fail_all(self, error: CoresidentError) -> list[Effect]:
        """The device is gone, or everything ends."""
        ending = ("failed", type(error).__name__, error)
        waiting, self._waiting = self._waiting, {}
        ended: list[Effect] = [self._end_waiting(message, *ending) for message in waiting.values()]
        return ended + [effect for job in self._jobs.values() for effect in self._withdraw(job, ending)]

    def _withdraw(self, job: _Job, ending: tuple[str, str, CoresidentError | None]) -> list[Effect]:
        asked = job.ending is not None
        if not asked or ending[0] == "failed":
            job.ending = ending
        return [] if asked else [Send(self._device, WithdrawStep(job.step.step))]

    def step_done(self, done: StepDone) -> list[Effect]:
        """A step has ended, and its request with it; a file that was finished in spite of a cancel is one."""
        job = self._steps.pop(done.step)
        del self._jobs[job.request]
        outcome, reason, error = job.ending or ("cancelled", "withdrawn", None)
        match done.outcome:
            case Finished(measured=measured):
                self._pace.learn(job.step.work.kind, len(job.file.tokens), measured.step_ns)
                if outcome != "failed":
                    outcome, reason, error = "completed", "", None
            case Failed(failure) | StepRefused(failure):
                outcome, reason, error = "failed", type(failure).__name__, failure
        effects = self._let_go(job, outcome, isinstance(done.outcome, Finished))
        return [*effects, self._end(job.request, job.file.path, len(job.file.tokens), outcome, reason, error)]

    def _let_go(self, job: _Job, outcome: str, finished: bool) -> list[Effect]:
        """What becomes of the prefix: one that was fetched while the device was lost is lost too."""
        if isinstance(job.step.work, StoreWork):
            job.entry.users -= 1
            return []
        if outcome == "completed":
            return self._kv.fetched(job.entry, job.request)
        if finished:
            return self._kv.lost(job.entry)
        self._kv.prefixes.remove(job.entry.handle)
        return []

    def _end_waiting(
        self, message: StorePrefix, outcome: str, reason: str, error: CoresidentError | None = None
    ) -> Effect:
        return self._end(message.request, message.path, 0, outcome, reason, error)

    def _end(
        self, request: str, path: str, tokens: int, outcome: str, reason: str, error: CoresidentError | None = None
    ) -> Effect:
        size = tokens * self._setup.kv_bytes_per_token
        return Notify(CheckpointEnded(request, outcome, reason, path, tokens, size, error))
