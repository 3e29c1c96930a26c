"""Preparation: prefilling, while nothing else wants the device, what is known of a prompt to come.

Rule 1: boundaries are the caller's; known history is prefilled up to the last whole chunk of the grid, so that the
foreground goes on on the grid. Rule 2: one preparation is at work at a time, the oldest first; a newer one of the same
conversation supersedes it and takes over what both share. Rule 3: a request that continues what is being prepared takes
it over where it stands, the chunk in flight included. Rule 4: a request that needs the KV slot, or a part of what is in
it, gets it: the preparation saves its finished chunks, waits, and goes on from there. Rule 5: when it may begin is the
policy's choice; the ordering policy sees to it that it only ever runs when nothing else waits.
"""

from __future__ import annotations

from collections import deque

import attrs
import numpy as np

from ..policies.errors import PolicyFault
from ..policies.preparation.idle import idle
from ..policies.views import PreparationView, WorkClass
from .errors import CoresidentError
from .events import PreparationEnded
from .guard import Guarded
from .memory.entries import common_head
from .messages import SubmitGeneration, SubmitPreparation
from .pace import Pace
from .sequences import GenerationSetup, Sequence, new_sequence
from .work import StepKind

_THINKS = 16


@attrs.define(eq=False)
class Job:
    """One preparation from its acceptance to its end; ``sequence`` is its present attempt at a KV slot.

    Attempts ``reused`` what others had computed, and ``reached`` a position; earlier ones ``computed`` tokens. The last
    one was ``fruitless`` when it had to leave before it finished a chunk.
    """

    spec: SubmitPreparation
    goal: int
    sequence: Sequence
    reused: int = 0
    computed: int = 0
    reached: int = 0
    fruitless: bool = False


class Preparer:
    """The preparations of one generation model, in order of arrival."""

    def __init__(self, setup: GenerationSetup, pace: Pace) -> None:
        self._setup = setup
        self._pace = pace
        self.policy = Guarded("preparation", setup.preparation, idle)
        self._jobs: dict[str, Job] = {}
        self._thinks: deque[int] = deque(maxlen=_THINKS)
        self._computed = self._wasted = 0
        self.quiet_since = 0

    def __contains__(self, request: str) -> bool:
        return request in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, spec: SubmitPreparation, at: int) -> Job:
        """Take a preparation on, in the place of those that it supersedes. Its goal may be 0 tokens.

        No more is prepared than can be retained.
        """
        chunk, setup = self._setup.chunk, self._setup
        goal = min(len(spec.tokens), setup.retained_bytes // setup.kv_bytes_per_token) // chunk * chunk
        job = Job(spec, goal, self._attempt(spec, goal, at))
        older = {name for name, other in self._jobs.items() if other.spec.conversation == spec.conversation}
        order = list(self._jobs.items())
        place = next((i for i, (name, _) in enumerate(order) if name in older), len(order))
        self._jobs = dict([*order[:place], (spec.request, job), *order[place:]])
        return job

    def again(self, sequence: Sequence, at: int) -> Sequence:
        """After its slot was needed: another attempt, which goes on from what was saved."""
        job = self._jobs[sequence.request]
        job.computed += sequence.prefilled
        job.reached = max(job.reached, sequence.position)
        job.fruitless = not sequence.prefilled
        job.sequence = self._attempt(job.spec, job.goal, at)
        job.sequence.arrived = sequence.arrived
        return job.sequence

    def owed_a_chunk(self, sequence: Sequence) -> bool:
        """Whether an attempt has finished nothing yet, and the one before it hadn't either when it had to leave."""
        return self._jobs[sequence.request].fruitless and not sequence.prefilled

    def seated(self, sequence: Sequence) -> None:
        """An attempt begins behind what is retained: what earlier attempts had not reached, others computed."""
        job = self._jobs[sequence.request]
        job.reused += max(0, sequence.reused - job.reached)
        job.reached = max(job.reached, sequence.reused)

    def superseded_by(self, spec: SubmitPreparation) -> list[Job]:
        """The unfinished preparations of the same conversation."""
        same = (job for job in self._jobs.values() if job.spec.conversation == spec.conversation)
        return [job for job in same if job.spec.request != spec.request]

    def unshared(self, older: Job, newer: Job) -> int:
        """Tokens that an older preparation reached and that the one in its place can't use."""
        head = 0
        if older.spec.identity == newer.spec.identity:
            head = common_head(np.asarray(older.sequence.spec.prompt), np.asarray(newer.sequence.spec.prompt))
        reached = max(older.reached, older.sequence.position)
        shared = min(head, reached)
        return reached - shared // self._setup.reuse_grid * self._setup.reuse_grid

    def active(self) -> Sequence | None:
        """The oldest preparation's attempt: the one that may run."""
        return next((job.sequence for job in self._jobs.values()), None)

    def end(self, request: str, outcome: str, wasted: int, error: CoresidentError | None) -> PreparationEnded:
        """Forget a preparation; its last event. ``wasted`` counts at most what it computed."""
        job = self._jobs.pop(request)
        computed = job.computed + job.sequence.prefilled
        wasted = min(wasted, computed)
        self._computed, self._wasted = self._computed + computed, self._wasted + wasted
        return PreparationEnded(request, outcome, job.goal, job.reused, computed, wasted, error)

    def quiet_ends(self, at: int) -> None:
        """A request has come after a time in which there was none."""
        self._thinks.append(at - self.quiet_since)

    def begins(self, at: int, others: int) -> int | None:
        """When preparation may go on: at once (``at``), later, or ``None`` for not while things are as they are."""
        attempt = self.active()
        left = 0 if attempt is None else len(attempt.spec.prompt) - attempt.position
        cost_ns = self._pace.estimate(StepKind.PREFILL, left)
        thinks = tuple(self._thinks)
        view = PreparationView(at, others, self.quiet_since, cost_ns, thinks, self._computed, self._wasted)

        def check(when: int | None) -> None:
            if when is not None and (type(when) is not int or when < at):
                raise PolicyFault(f"preparation chose {when!r}: it takes a time from {at} on, or None")

        return self.policy.ask(view, check)

    @staticmethod
    def _attempt(spec: SubmitPreparation, goal: int, at: int) -> Sequence:
        prompt = spec.tokens[:goal]
        work = SubmitGeneration(
            spec.request, prompt, 1, spec.identity, WorkClass.PREPARATION, conversation=spec.conversation
        )
        return new_sequence(work, at)
