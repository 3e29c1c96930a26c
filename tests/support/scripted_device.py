"""A device without hardware that does what an executor promises, one segment at a time.

Its KV slots hold token ids, and what comes next is a function of all that a slot holds: whoever feeds a wrong history,
writes into a neighbour's slot, or reuses what was never computed, gets other tokens and scores than a solo run.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter

import attrs
from coresident.actors.messages import Failed, Finished, GrantEnded, Suspended, Withdrawn
from coresident.actors.work import (
    CopyWork,
    DecisionWork,
    DecodeWork,
    Grant,
    LoadWork,
    Measured,
    PrefillWork,
    RestoreWork,
    RowResult,
    RowScores,
    SaveWork,
    StepRequest,
    StepResult,
    WarmupWork,
    Work,
)
from coresident.policies.views import WorkClass

from .retained_blocks import RetainedBlocks, State, evaluate

MS = 1_000_000
VOCABULARY = 97
STOP = 0


def next_token(history) -> int:
    """The token after a history; 0 is the stop token."""
    return zlib.crc32(array("q", history).tobytes()) % VOCABULARY


def score(history, head: str) -> float:
    """A head's raw value after a history, within -5 and 5."""
    return zlib.crc32(head.encode(), zlib.crc32(array("q", history).tobytes())) % 1000 / 100 - 5


def solo_tokens(prompt, max_tokens: int) -> tuple[int, ...]:
    """What a request generates with the device to itself."""
    history = list(prompt)
    for _ in range(max_tokens):
        history.append(next_token(history))
        if history[-1] == STOP:
            break
    return tuple(history[len(prompt) :])


@attrs.frozen
class Segment:
    """A segment that ran to its end."""

    step: StepRequest
    work_class: WorkClass
    ended: int


@attrs.define
class Job:
    """A step on its way."""

    grant: Grant
    segments: int
    done: int = 0
    since_grant: int = 0
    step_ns: int = 0
    tokens: dict[str, list[int]] = attrs.field(factory=dict)
    stops: set[str] = attrs.field(factory=set)
    yield_asked: bool = False
    give_up: bool = False


class ScriptedDevice:
    """Runs the granted step when told to; ``inject`` makes a segment fail, ``excess`` is measured above the charge."""

    def __init__(self, can_suspend: bool, prefill_segments: int, segment_ns: int, block: int = 0) -> None:
        self.can_suspend = can_suspend
        self.prefill_segments = prefill_segments
        self.segment_ns = segment_ns
        self.running: Job | None = None
        self.suspended: dict[str, Job] = {}
        self.slots: dict[tuple[str, str, int], list[State]] = {}
        self.retained = RetainedBlocks(block)
        self.weights: set[str] = set()
        self.ready: set[str] = set()
        self.streams: dict[str, list[int]] = {}
        self.segments: list[Segment] = []
        self.finished: list[StepRequest] = []
        self.loads: Counter[str] = Counter()
        self.inject: Failed | None = None
        self.excess = 0

    # --- what the host does ---------------------------------------------------------------------------------------

    def run(self, grant: Grant) -> None:
        assert self.running is None, f"{grant} was given while {self.running} runs"
        name = grant.step.step
        if grant.resumed:
            job = self.suspended.pop(name)
            self.running = attrs.evolve(job, grant=grant, since_grant=0, yield_asked=False, give_up=False)
        else:
            assert name not in self.suspended
            self._begin(grant.step.work)
            self.running = Job(grant, self.segments_of(grant.step.work))

    def ask_yield(self, grant: int, give_up: bool) -> None:
        if self.running is not None and self.running.grant.grant == grant:
            self.running.yield_asked = True
            self.running.give_up |= give_up

    def drop_suspended(self, step: str) -> None:
        del self.suspended[step]

    def drop_retained(self, handle: int) -> None:
        self.retained.drop(handle)

    def unload(self, model: str) -> None:
        self.weights.remove(model)

    def segment(self, at: int) -> GrantEnded | None:
        """Run one segment that ends at ``at``; how the grant ended, if it did."""
        job = self.running
        assert job is not None
        step = job.grant.step
        job.done, job.since_grant, job.step_ns = job.done + 1, job.since_grant + 1, job.step_ns + self.segment_ns
        self.segments.append(Segment(step, step.work_class, at))
        if self.inject is not None:
            failure, self.inject = self.inject, None
            return self._fail(job, failure)
        if isinstance(step.work, DecodeWork):
            self._decode(job, step.work)
        if job.done == job.segments or (isinstance(step.work, DecodeWork) and job.yield_asked):
            return self._finish(job)
        if not job.yield_asked:
            return None
        if job.give_up:
            return self._end(job, Withdrawn())
        if self.can_suspend:
            self.suspended[step.step] = job
            return self._end(job, Suspended(self._measured(job)))
        return None

    # --- steps ----------------------------------------------------------------------------------------------------

    def segments_of(self, work: Work) -> int:
        match work:
            case PrefillWork():
                return self.prefill_segments
            case DecodeWork():
                return min(work.quantum, max(row.limit for row in work.rows))
            case DecisionWork():
                return 2 * len(work.rows)
            case CopyWork() | WarmupWork():
                return 1
            case _:
                return 2

    def _begin(self, work: Work) -> None:
        """What a step finds must be there, and what it is about to overwrite is gone."""
        match work:
            case LoadWork(model, weights):
                assert weights or model in self.weights
                self.ready.discard(model)
            case PrefillWork():
                self._cut((work.model, work.role, work.slot), work.start)
            case DecodeWork():
                for row in work.rows:
                    self._cut((work.model, "generation", row.slot), row.position)
            case DecisionWork():
                for row in work.rows:
                    self._cut((work.model, "decision", row.slot), row.start)
            case RestoreWork():
                assert len(self.retained[work.handle]) >= work.tokens
        assert isinstance(work, LoadWork) or work.model in self.ready, f"{work} runs before its model is loaded"

    def _cut(self, slot: tuple[str, str, int], start: int) -> None:
        held = self.slots.setdefault(slot, [])
        assert len(held) >= start, f"slot {slot} holds {len(held)} tokens, {start} are taken for granted"
        del held[start:]

    def _decode(self, job: Job, work: DecodeWork) -> None:
        for row in work.rows:
            mine = job.tokens.setdefault(row.request, [])
            if row.request in job.stops or len(mine) == row.limit:
                continue
            held = self.slots[work.model, "generation", row.slot]
            held += evaluate(held, [mine[-1] if mine else row.token], "decode")
            self._sample(row.request, held, job)

    def _sample(self, request: str, held: list[int], job: Job) -> None:
        token = next_token(held)
        job.tokens.setdefault(request, []).append(token)
        self.streams.setdefault(request, []).append(token)
        if token == STOP:
            job.stops.add(request)

    def _finish(self, job: Job) -> GrantEnded:
        work = job.grant.step.work
        scores: tuple[RowScores, ...] = ()
        match work:
            case LoadWork(model, weights):
                self.loads[model] += weights
                self.weights.add(model)
                self.ready.add(model)
                self.slots = {slot: held for slot, held in self.slots.items() if slot[0] != model}
            case PrefillWork():
                held = self.slots[work.model, work.role, work.slot]
                assert len(held) == work.start
                held += evaluate(held, work.tokens, "prefill")
                if work.last:
                    self._sample(work.request, held, job)
            case DecisionWork():
                scores = tuple(self._score(work, row) for row in work.rows)
            case CopyWork():
                for target in work.targets:
                    source = self.slots[work.model, work.role, work.source]
                    self.slots[work.model, work.role, target] = source[: work.tokens]
            case SaveWork():
                held = self.slots[work.model, "generation", work.slot]
                assert len(held) >= work.tokens
                self.retained.save(work.handle, held[: work.tokens], work.base, work.shared)
            case RestoreWork():
                self.slots[work.model, "generation", work.slot] = self.retained[work.handle][: work.tokens]
        self.finished.append(job.grant.step)
        rows = tuple(RowResult(r, tuple(t), "stop_token" if r in job.stops else None) for r, t in job.tokens.items())
        return self._end(job, Finished(StepResult(rows, scores), self._measured(job)))

    def _score(self, work: DecisionWork, row) -> RowScores:
        held = self.slots[work.model, "decision", row.slot]
        held += evaluate(held, row.tokens, "row")
        return RowScores(row.index, tuple(score(held, head) for head in work.heads))

    def _fail(self, job: Job, failure: Failed) -> GrantEnded:
        if failure.sticky:
            self.slots.clear()
            self.retained.clear()
            self.ready.clear()
            failure = attrs.evolve(failure, shown=tuple(job.tokens))
        return self._end(job, failure)

    def _end(self, job: Job, outcome: Finished | Suspended | Failed | Withdrawn) -> GrantEnded:
        self.running = None
        return GrantEnded(job.grant.grant, outcome)

    def _measured(self, job: Job) -> Measured:
        excess, self.excess = self.excess, 0
        used = job.grant.step.charge + excess
        return Measured(used, job.since_grant * self.segment_ns, job.since_grant, self.segment_ns, job.step_ns)
