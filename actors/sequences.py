"""One generation request between its acceptance and its end, and the device steps it asks for.

``position`` counts the tokens whose KV state is in the slot: after prefill the whole prompt, then one more for every
token that was fed. The newest generated token has been sampled but not fed. ``aligned`` counts those of them that were
computed in whole chunks of the grid, from position 0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from ..policies.errors import PolicyFault
from ..policies.quantum.fixed import fixed
from ..policies.views import Preparation, Quantum, QuantumView, Retention, WorkClass
from .errors import ContextExceeded, CoresidentError, InvalidRequest, Overloaded
from .guard import Guarded
from .lifecycle import Lifecycle
from .memory.entries import Entry, PrefixStatistics
from .messages import SubmitGeneration
from .pace import Pace
from .work import (
    DecodeRow,
    DecodeWork,
    Measured,
    PrefillWork,
    RestoreWork,
    SaveWork,
    StepKind,
    StepRequest,
    StepResult,
    StepShape,
    Work,
    shape_of,
)


@attrs.frozen
class GenerationSetup:
    """What a generation actor is told about its model when it is made.

    ``context`` is the admitted context in tokens, ``slots`` the KV slots, ``chunk`` the prefill chunk, ``queue`` the
    most requests open at once; ``charge`` gives the workspace bytes of a step's shape. ``reuse_grid`` 1 reuses every
    matched token; the chunk size restricts reuse to whole chunks, which keeps logits bit-identical to a cold run.
    ``windows`` has one entry a layer where layers see only so many positions, ``None`` for those that see all.
    Retained storage shares heads in blocks of ``retained_block`` tokens, or not at all where that is 0. A request that
    has shown nothing is run again ``reruns`` times after the device was lost.
    """

    model: str
    context: int
    slots: int
    chunk: int
    queue: int
    kv_bytes_per_token: int
    retained_bytes: int
    charge: Callable[[StepShape], int]
    quantum: Quantum
    retention: Retention
    preparation: Preparation
    reuse_grid: int = 1
    windows: tuple[int | None, ...] = ()
    retained_block: int = 0
    reruns: int = 0

    @property
    def retained_account(self) -> str:
        return f"retained/{self.model}"


@attrs.frozen
class GenerationStatistics:
    """Requests by state, and retained prefixes. ``slots`` are the free KV slots."""

    open: int
    queued: int
    slots: int
    completed: int
    cancelled: int
    failed: int
    refused: int
    prepared: int
    prefixes: PrefixStatistics


@attrs.frozen
class Ending:
    """How a request is to end once its step has ended; ``wasted`` tokens of a preparation serve nobody."""

    outcome: str
    reason: str
    error: CoresidentError | None = None
    wasted: int = 0


def new_sequence(spec: SubmitGeneration, at: int, losses: int = 0) -> Sequence:
    """A request that arrived at ``at``, not begun, or not any more."""
    return Sequence(spec, at, Lifecycle("generation", spec.request, "queued"), spec.work_class, losses=losses)


@attrs.define(eq=False)
class Sequence:
    """The mutable state of one request.

    ``since`` is when its next step was first submitted; ``passed`` counts later requests that got a KV slot before it.
    ``work_class`` is its request's, or that of the request it makes way for; the outcome of step ``stray`` is ignored.
    What it holds begins with the ``copied`` (handle, tokens) of a retained prefix.
    """

    spec: SubmitGeneration
    arrived: int
    life: Lifecycle
    work_class: WorkClass
    slot: int | None = None
    position: int = 0
    generated: list[int] = attrs.field(factory=list)
    step: str | None = None
    started: bool = False
    restore: int | None = None
    save: int | None = None
    aligned: int = 0
    copied: tuple[int | None, int] = (None, 0)
    reused: int = 0
    prefilled: int = 0
    cost_ns: int = 0
    since: int | None = None
    passed: int = 0
    stray: str | None = None
    ending: Ending | None = None
    losses: int = 0

    @property
    def request(self) -> str:
        return self.spec.request

    @property
    def prepares(self) -> bool:
        """Whether it only prefills what is known of a prompt to come."""
        return self.spec.work_class is WorkClass.PREPARATION

    def held(self) -> tuple[int, ...]:
        """The tokens whose KV state is in the slot."""
        return (*self.spec.prompt, *self.generated)[: self.position]

    def chunk_done(self, tokens: int, chunk: int) -> None:
        """A prefill chunk has finished; ``aligned`` follows while chunks are whole and on the grid."""
        whole = self.aligned == self.position and tokens == chunk
        self.position += tokens
        self.prefilled += tokens
        self.aligned = self.position if whole else self.aligned

    def prefill_end(self, chunk: int) -> int:
        """Where the next prefill chunk ends: on the chunk grid, or at the prompt's end."""
        return min((self.position // chunk + 1) * chunk, len(self.spec.prompt))


class StepMaker:
    """Builds step requests of one generation model, with charges and expected durations."""

    def __init__(self, setup: GenerationSetup, owner: str) -> None:
        self._setup = setup
        self._owner = owner
        self._count = 0
        self.policy = Guarded("quantum", setup.quantum, fixed)
        self.pace = Pace()
        self.decisions = 0

    def prefill(self, sequence: Sequence) -> StepRequest:
        """The next chunk of a sequence's prompt."""
        prompt = sequence.spec.prompt
        end = sequence.prefill_end(self._setup.chunk)
        tokens = prompt[sequence.position : end]
        work = PrefillWork(
            self._setup.model,
            "generation",
            sequence.request,
            self._slot(sequence),
            sequence.position,
            tokens,
            last=end == len(prompt) and not sequence.prepares,
        )
        return self._step([sequence], work, self.pace.estimate(StepKind.PREFILL, len(tokens)))

    def decode(self, rows: list[Sequence], waiting: int, at: int) -> StepRequest:
        """A decode run of several sequences of one class."""
        token_ns = self.pace.estimate(StepKind.DECODE, 1)
        view = QuantumView(len(rows), token_ns, waiting, rows[0].work_class, at, self.decisions)
        quantum = self.policy.ask(view, _check_quantum)
        decode_rows = [
            DecodeRow(s.spec.request, self._slot(s), s.position, s.generated[-1], s.spec.max_tokens - len(s.generated))
            for s in rows
        ]
        quantum = min(quantum, max([row.limit for row in decode_rows]))
        return self._step(rows, DecodeWork(self._setup.model, tuple(decode_rows), quantum), token_ns * quantum)

    def restore(self, sequence: Sequence, handle: int) -> StepRequest:
        """Bring a retained prefix into the sequence's slot."""
        work = RestoreWork(self._setup.model, self._slot(sequence), sequence.reused, handle)
        return self._step([sequence], work, self.pace.estimate(StepKind.RESTORE, sequence.reused))

    def save(self, sequence: Sequence, entry: Entry) -> StepRequest:
        """Retain what the sequence's slot holds as ``entry``."""
        slot, tokens = self._slot(sequence), sequence.position
        work = SaveWork(self._setup.model, slot, tokens, entry.handle, entry.base, entry.shared)
        step = self._step([sequence], work, self.pace.estimate(StepKind.SAVE, tokens - entry.shared))
        return attrs.evolve(step, keeps=(self._setup.retained_account, f"prefix/{entry.handle}", entry.bytes))

    def learn(self, step: StepRequest, result: StepResult, measured: Measured) -> None:
        """Take a finished step's measured time."""
        match step.work:
            case PrefillWork(tokens=tokens):
                units = len(tokens)
            case SaveWork(tokens=tokens, shared=shared):
                units = tokens - shared
            case RestoreWork(tokens=units):
                pass
            case _:
                units = max([len(row.tokens) for row in result.rows], default=0)
        self.pace.learn(step.work.kind, units, measured.step_ns)

    def _step(self, sequences: list[Sequence], work: Work, bound_ns: int) -> StepRequest:
        """A step that serves sequences: as urgent as the most urgent of them, and as old as the oldest."""
        self._count += 1
        name, shape, first = f"{self._owner}/{self._count}", shape_of(work), sequences[0]
        work_class, arrived, deadline, since = first.work_class, first.arrived, first.spec.deadline, first.since
        started, remaining_ns = first.started, self._remaining_ns(first)
        first.step, first.started = name, True
        for other in sequences[1:]:
            work_class, arrived = min(work_class, other.work_class), min(arrived, other.arrived)
            deadline, since = _earliest(deadline, other.spec.deadline), _earliest(since, other.since)
            started, remaining_ns = started or other.started, min(remaining_ns, self._remaining_ns(other))
            other.step, other.started = name, True
        charge = self._setup.charge(shape) if shape else 0
        return StepRequest(
            name,
            self._owner,
            first.spec.request,
            work_class,
            work,
            charge,
            bound_ns,
            arrived,
            deadline=deadline,
            started=started,
            since=since,
            remaining_ns=remaining_ns,
        )

    def _remaining_ns(self, sequence: Sequence) -> int:
        """Expected device time up to the last token that a sequence may generate."""
        spec, prompt = sequence.spec, len(sequence.spec.prompt) - sequence.position
        tokens = 0 if sequence.prepares else spec.max_tokens - len(sequence.generated)
        prefill_ns = self.pace.estimate(StepKind.PREFILL, prompt) if prompt > 0 else 0
        return prefill_ns + self.pace.estimate(StepKind.DECODE, tokens)

    @staticmethod
    def _slot(sequence: Sequence) -> int:
        if sequence.slot is None:
            raise RuntimeError(f"{sequence.request} has no KV slot")
        return sequence.slot


def _earliest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _check_quantum(quantum: object) -> None:
    if not isinstance(quantum, int) or quantum < 1:
        raise PolicyFault(f"quantum chose {quantum!r} tokens: a run has a whole number of them, at least 1")


def refusal(
    spec: SubmitGeneration, setup: GenerationSetup, open_requests: Mapping[str, Sequence]
) -> CoresidentError | None:
    """Why a request cannot be accepted, with the numbers; ``None`` when it can."""
    if not spec.prompt or spec.max_tokens < 1:
        return InvalidRequest(
            f"prompt of {len(spec.prompt)} tokens and max_tokens {spec.max_tokens}: both must be at least 1",
            prompt=len(spec.prompt),
            max_tokens=spec.max_tokens,
        )
    if spec.work_class is WorkClass.PREPARATION:
        return InvalidRequest("a generation request of class preparation: prepare() takes what is known of a prompt")
    if len(spec.prompt) + spec.max_tokens > setup.context:
        return ContextExceeded(len(spec.prompt), spec.max_tokens, setup.context)
    others = len(open_requests)
    if others >= setup.queue:
        others = sum(not sequence.prepares for sequence in open_requests.values())
    if others >= setup.queue:
        return Overloaded(
            f"{others} generation requests are open, the limit is {setup.queue}: wait for one to end",
            open=others,
            limit=setup.queue,
        )
    return None
