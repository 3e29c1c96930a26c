"""What policies see: frozen views of the actors' state, and the choices they return.

A policy is a pure callable ``decide(view, memory) -> (choice, memory)``. Memory is whatever immutable value
the policy wants to see again (``None`` at first); it is kept only when the choice is carried out. Times are
integer nanoseconds, sizes integer bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

import attrs


class WorkClass(IntEnum):
    """Classes of work in order of urgency; a smaller value is more urgent."""

    DECISION = 0
    FOREGROUND = 1
    UTILITY = 2
    PREPARATION = 3

    @property
    def label(self) -> str:
        """The word used in traces, configuration and tables."""
        return self.name.lower()


@attrs.frozen
class StepView:
    """One step that could run next.

    ``request_arrived`` is when the request behind it arrived, ``submitted`` when this step was submitted.
    ``bound_ns`` is the expected duration of one whole step. ``suspended`` marks a chunk stopped between two
    segments; ``drops`` counts how often it was dropped. ``started`` says that an earlier step of the same
    request has run. ``passed`` says that a segment of less urgent work has ended since the request arrived.
    ``remaining_ns`` is the device time that the request may still need, this step included: its prompt and all the
    tokens it may generate, at measured speed; 0 where that is not known.
    """

    step: str
    request: str
    work_class: WorkClass
    submitted: int
    request_arrived: int
    charge: int
    bound_ns: int
    deadline: int | None = None
    suspended: bool = False
    started: bool = False
    passed: bool = False
    drops: int = 0
    remaining_ns: int = 0


@attrs.frozen
class OrderingView:
    """The device at one instant: what waits (suspended chunks included), what runs, the free workspace bytes.

    ``waiting`` is in order of submission: policies leave equal steps in that order. ``free_since`` is when the last
    grant ended, 0 before the first: what came after it was idle time.
    """

    at: int
    waiting: tuple[StepView, ...]
    running: StepView | None
    free: int
    free_since: int = 0


@attrs.frozen
class Choice:
    """The step that should have the device. With a running step, naming that step lets it go on.

    ``drop`` names suspended chunks whose workspace is given up first (each chunk at most once in its life).
    """

    step: str
    drop: tuple[str, ...] = ()


@attrs.frozen
class QuantumView:
    """A decode run about to be submitted: its rows, measured time of one token, and what else is open.

    ``waiting`` counts open requests of the same model that are not in this run. ``decisions`` counts the decision
    requests that have asked for the device since it was made, as known at ``at``, when the run is submitted.
    """

    rows: int
    token_ns: int
    waiting: int
    work_class: WorkClass
    at: int = 0
    decisions: int = 0


@attrs.frozen
class RetainedView:
    """One retained prefix: its tokens, time of last use, uses since it was kept, what recomputing costs.

    ``bytes`` are free without it: not those that other prefixes hold too.
    """

    handle: int
    bytes: int
    tokens: int
    last_used: int
    uses: int
    cost_ns: int


@attrs.frozen
class RetentionView:
    """``needed`` bytes must be freed for a new prefix; ``entries`` may be evicted (none is pinned)."""

    at: int
    needed: int
    entries: tuple[RetainedView, ...]


@attrs.frozen
class AbstentionView:
    """A decision request at one stage: ``accepted``, before each ``slice``, or ``scored``.

    ``remaining_ns`` estimates the device time still needed. ``scores`` is empty before ``scored``; then it
    holds, for each head, its kind (``rank``, ``probability``, ``choice``) and one finished value per row.
    """

    at: int
    stage: str
    deadline: int | None
    remaining_ns: int
    scores: tuple[tuple[str, tuple[float, ...]], ...] = ()


@attrs.frozen
class PreparationView:
    """A preparation that could go on.

    ``open`` counts the other open requests of its model; ``quiet_since`` is when the last of them ended, or when the
    model became available. ``cost_ns`` is the device time of the tokens left to prepare, at measured speed, 0 where
    that is not known. ``thinks`` are the latest times from such an end to the next request. Preparations that have
    ended ``computed`` so many tokens, of which ``wasted`` serve nobody, because a newer one superseded them.
    """

    at: int
    open: int
    quiet_since: int
    cost_ns: int = 0
    thinks: tuple[int, ...] = ()
    computed: int = 0
    wasted: int = 0


Ordering: TypeAlias = Callable[[OrderingView, Any], tuple[Choice, Any]]
Quantum: TypeAlias = Callable[[QuantumView, Any], tuple[int, Any]]
Retention: TypeAlias = Callable[[RetentionView, Any], tuple[int, Any]]
Preparation: TypeAlias = Callable[[PreparationView, Any], tuple[int | None, Any]]
Abstention: TypeAlias = Callable[[AbstentionView, Any], tuple[str | None, Any]]
