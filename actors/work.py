"""Device work as data: what a step does, what it may use, how it ended.

Actors build these values, hosts carry them to a backend, and traces record them. A step is the unit that a grant
covers; a segment is the part of it between two synchronized points.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import attrs

from ..policies.errors import CoresidentError
from ..policies.views import WorkClass


class StepKind(StrEnum):
    """What a step does on the device."""

    LOAD = "load"
    WARMUP = "warmup"
    PREFILL = "prefill"
    DECODE = "decode"
    DECISION = "decision"
    COPY = "copy"
    SAVE = "save"
    RESTORE = "restore"
    STORE = "store"
    FETCH = "fetch"


@attrs.frozen
class StepShape:
    """What determines a step's workspace: ``rows`` sequences, at most ``tokens`` new ones each, up to ``context``."""

    kind: StepKind
    rows: int
    tokens: int
    context: int


@attrs.frozen
class LoadWork:
    """Load weights, or only allocate KV slots again when not ``weights``; ``repair`` replaces damaged files first."""

    model: str
    weights: bool = True
    repair: bool = False
    kind = StepKind.LOAD


@attrs.frozen
class WarmupWork:
    """Run every shape once, so that the first request pays no first-use cost."""

    model: str
    kind = StepKind.WARMUP


@attrs.frozen
class PrefillWork:
    """Prefill ``tokens`` at positions ``start ...`` of a KV slot; ``last`` also samples the sequence's first token.

    With the ``decision`` role the tokens are an instruction's, and nothing is sampled.
    """

    model: str
    role: str
    request: str
    slot: int
    start: int
    tokens: tuple[int, ...]
    last: bool
    kind = StepKind.PREFILL


@attrs.frozen
class DecodeRow:
    """One sequence in a decode run: feed ``token`` at ``position``, then go on for at most ``limit`` new tokens."""

    request: str
    slot: int
    position: int
    token: int
    limit: int


@attrs.frozen
class DecodeWork:
    """A decode run: up to ``quantum`` tokens for each row under one grant."""

    model: str
    rows: tuple[DecodeRow, ...]
    quantum: int
    kind = StepKind.DECODE


@attrs.frozen
class DecisionRow:
    """One row of a decision: ``tokens`` after the first ``start`` positions (the instruction) of a KV slot."""

    index: int
    slot: int
    start: int
    tokens: tuple[int, ...]


@attrs.frozen
class DecisionWork:
    """A slice of a decision request: score its rows with the named heads."""

    model: str
    request: str
    rows: tuple[DecisionRow, ...]
    heads: tuple[str, ...]
    kind = StepKind.DECISION


@attrs.frozen
class CopyWork:
    """Copy the first ``tokens`` positions of one KV slot into others of the same model and role."""

    model: str
    role: str
    source: int
    targets: tuple[int, ...]
    tokens: int
    kind = StepKind.COPY


@attrs.frozen
class SaveWork:
    """Copy the first ``tokens`` positions of a generation slot into retained storage under ``handle``.

    The first ``shared`` of them are there already: storage ``base`` has the same ones, and they are taken from it.
    """

    model: str
    slot: int
    tokens: int
    handle: int
    base: int | None = None
    shared: int = 0
    kind = StepKind.SAVE


@attrs.frozen
class RestoreWork:
    """Copy the first ``tokens`` positions of retained storage ``handle`` into a generation slot."""

    model: str
    slot: int
    tokens: int
    handle: int
    kind = StepKind.RESTORE


@attrs.frozen
class PrefixFile:
    """A prefix on disk: where it is, and what it has to say of itself.

    ``launch`` is the process launch that it is valid within; ``aligned`` of its ``tokens`` were computed in whole
    chunks of ``chunk`` tokens, in order from position 0.
    """

    path: str
    launch: str
    identity: str
    tokens: tuple[int, ...]
    aligned: int
    chunk: int


@attrs.frozen
class StoreWork:
    """Write the first positions of retained storage ``handle`` to a file."""

    model: str
    handle: int
    file: PrefixFile
    kind = StepKind.STORE


@attrs.frozen
class FetchWork:
    """Read a file into retained storage under a new ``handle``, verified."""

    model: str
    handle: int
    file: PrefixFile
    kind = StepKind.FETCH


Work: TypeAlias = (
    LoadWork
    | WarmupWork
    | PrefillWork
    | DecodeWork
    | DecisionWork
    | CopyWork
    | SaveWork
    | RestoreWork
    | StoreWork
    | FetchWork
)


@attrs.frozen
class StepRequest:
    """A step that asks for the device.

    ``step`` is unique (``generation/17``). ``charge`` is workspace bytes; ``reserves`` are bytes of ledger accounts
    that must be reserved before a load may run. ``keeps`` is ``(account, owner, bytes)`` that stay charged after the
    step: what a save or a fetch retains. ``bound_ns`` is the expected duration of the whole step. ``since`` is when an
    earlier form of the step was submitted that was withdrawn before it ran, because another sequence left it: the place
    in the order is kept. ``remaining_ns`` is the device time that the request may still need.
    """

    step: str
    owner: str
    request: str
    work_class: WorkClass
    work: Work
    charge: int
    bound_ns: int
    request_arrived: int
    deadline: int | None = None
    reserves: tuple[tuple[str, int], ...] = ()
    keeps: tuple[str, str, int] | None = None
    started: bool = False
    since: int | None = None
    remaining_ns: int = 0


def shape_of(work: Work) -> StepShape | None:
    """The shape of a step's products; ``None`` where it has none (loads, copies, saves, files)."""
    match work:
        case PrefillWork():
            return StepShape(work.kind, 1, len(work.tokens), work.start + len(work.tokens))
        case DecodeWork():
            context = max(r.position + min(r.limit, work.quantum) for r in work.rows)
            return StepShape(work.kind, len(work.rows), work.quantum, context)
        case DecisionWork():
            longest = max(len(row.tokens) for row in work.rows)
            return StepShape(work.kind, len(work.rows), longest, max(r.start + len(r.tokens) for r in work.rows))
        case _:
            return None


@attrs.frozen
class Grant:
    """The right to run one step; ``resumed`` when the step goes on from where it was suspended."""

    grant: int
    step: StepRequest
    resumed: bool = False


@attrs.frozen
class Measured:
    """What a grant used: peak workspace bytes, device time, and its segments.

    ``step_ns`` is the device time of the whole step so far, earlier grants of a suspended chunk included.
    """

    workspace: int
    device_ns: int
    segments: int
    longest_segment_ns: int
    step_ns: int


@attrs.frozen
class RowResult:
    """What one sequence got from a step: new tokens, and why it stopped (``stop_token``, ``stop_string``, ``None``).

    ``error`` ends this sequence alone as failed: its own client could not take a token.
    """

    request: str
    tokens: tuple[int, ...]
    stop: str | None = None
    error: CoresidentError | None = None


@attrs.frozen
class RowScores:
    """One decision row's raw head values (log-odds or scores), in the order of the work's heads."""

    index: int
    values: tuple[float, ...]


@attrs.frozen
class StepResult:
    """What a finished step produced; prefill and decode give ``rows``, decisions give ``scores``."""

    rows: tuple[RowResult, ...] = ()
    scores: tuple[RowScores, ...] = ()
