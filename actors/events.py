"""What the outside sees: events of requests (to their clients) and of the schedule (to observers and traces)."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from ..policies.views import WorkClass
from .errors import CoresidentError
from .work import Measured, StepKind, StepShape


@attrs.frozen
class Accepted:
    """The request was admitted; it will end exactly once."""

    request: str
    work_class: WorkClass


@attrs.frozen
class PrefixReused:
    """What the request's prompt found retained. ``0 <= reused <= matched <= prompt - 1``.

    ``kind`` is ``exact_continuation``, ``static_prefix`` or ``none``. What is reused comes out of retained prefix
    ``handle``, or from the preparation ``taken_from`` where it stood.
    """

    request: str
    prompt: int
    matched: int
    reused: int
    kind: str
    handle: int | None = None
    taken_from: str | None = None


@attrs.frozen
class GenerationEnded:
    """A generation request's end.

    ``outcome``: ``completed``, ``cancelled`` or ``failed``. ``reason``: ``stop_token``, ``stop_string``, ``length``,
    or why it was cancelled. ``prefilled`` counts prompt tokens computed by this request.
    """

    request: str
    outcome: str
    reason: str
    prompt: int
    reused: int
    prefilled: int
    tokens: int
    error: CoresidentError | None = None


@attrs.frozen
class PreparationAdvanced:
    """``position`` of ``goal`` tokens of a preparation are prefilled or were found retained."""

    request: str
    position: int
    goal: int


@attrs.frozen
class PreparationEnded:
    """A preparation's end.

    ``outcome``: ``prepared``, ``promoted`` (a foreground request took it over), ``superseded``, ``declined`` by the
    policy, ``cancelled`` or ``failed``. ``goal`` tokens were to be there, ``reused`` were retained already,
    ``computed`` were prefilled by this preparation, and ``wasted`` of those can't serve what came in its place.
    """

    request: str
    outcome: str
    goal: int
    reused: int
    computed: int
    wasted: int = 0
    error: CoresidentError | None = None


@attrs.frozen
class CheckpointEnded:
    """The end of writing a prefix to a file, or of reading one back.

    ``outcome``: ``completed``, ``cancelled`` or ``failed``; a fetch of what is retained already completes at once, with
    the ``reason`` ``retained``. ``tokens`` and ``bytes`` are the prefix's and its KV state's.
    """

    request: str
    outcome: str
    reason: str
    path: str
    tokens: int
    bytes: int
    error: CoresidentError | None = None


@attrs.frozen
class HeadScores:
    """Finished values of one head, one per row: ``rank`` scores, ``probability`` in 0..1, ``choice`` summing to 1."""

    head: str
    kind: str
    values: tuple[float, ...]


@attrs.frozen
class DecisionEnded:
    """A decision request's end.

    ``outcome``: ``completed``, ``abstained``, ``cancelled`` or ``failed``; ``reason`` says why when not completed.
    """

    request: str
    outcome: str
    reason: str
    rows: int
    tokens: int
    instruction_reused: int
    scores: tuple[HeadScores, ...] = ()
    error: CoresidentError | None = None


@attrs.frozen
class Refused:
    """The request was never admitted."""

    request: str
    error: CoresidentError


RequestEvent: TypeAlias = (
    Accepted
    | PrefixReused
    | GenerationEnded
    | PreparationAdvanced
    | PreparationEnded
    | CheckpointEnded
    | DecisionEnded
    | Refused
)


@attrs.frozen
class Granted:
    """The device was given to a step."""

    grant: int
    step: str
    owner: str
    request: str
    work_class: WorkClass
    kind: StepKind
    shape: StepShape | None
    charge: int
    resumed: bool
    waited_ns: int


@attrs.frozen
class Released:
    """A grant ended: ``finished``, ``suspended``, ``withdrawn``, ``dropped``, ``failed``; ``measured`` where it ran.

    What a suspended step held is given up by a second one: ``withdrawn``, ``dropped`` or ``failed``.
    """

    grant: int
    step: str
    outcome: str
    measured: Measured | None


@attrs.frozen
class YieldAsked:
    """The running grant was told to give way at its next segment, to ``to`` (a step), or because it was withdrawn."""

    grant: int
    step: str
    to: str | None


@attrs.frozen
class ChargeExceeded:
    """A step used more workspace than it was charged: a fault of its formula, reported and never ignored."""

    step: str
    charge: int
    measured: int


@attrs.frozen
class LedgerChanged:
    """Reserved and used bytes after a change, by account."""

    reserved: int
    used: int
    workspace: int
    partition: int


@attrs.frozen
class PrefixRetained:
    """A prefix was kept under ``handle``: what the KV slot of ``request`` held, where it comes out of one.

    ``bytes`` are those it added to what is retained: its first ``shared`` tokens are stored once, with prefix ``base``.
    """

    model: str
    handle: int
    tokens: int
    bytes: int
    request: str | None = None
    shared: int = 0
    base: int | None = None


@attrs.frozen
class PreparationSeated:
    """A preparation got a KV slot, for the first time or again, and goes on behind ``reused`` tokens.

    They come out of retained prefix ``handle``, or from the preparation ``taken_from`` where it stood.
    """

    request: str
    reused: int
    handle: int | None = None
    taken_from: str | None = None


@attrs.frozen
class PrefixDropped:
    """A retained prefix is gone: ``evicted``, ``superseded``, ``invalidated``, ``released`` or ``closed``.

    ``bytes`` are free with it: not those that others hold too.
    """

    model: str
    handle: int
    tokens: int
    bytes: int
    why: str


@attrs.frozen
class PolicyFaulted:
    """A policy misbehaved; first-in, first-out order (or the neutral choice) stands in for it from here on."""

    policy: str
    error: CoresidentError


@attrs.frozen
class ReadinessChanged:
    """``state``: ``starting``, ``ready``, ``faulted``, ``recovering``, ``closing``, ``closed``; ``revision`` grows."""

    revision: int
    state: str
    admitted_context: int
    actions: tuple[str, ...]
    error: CoresidentError | None = None


ScheduleEvent: TypeAlias = (
    Granted
    | Released
    | YieldAsked
    | ChargeExceeded
    | LedgerChanged
    | PrefixRetained
    | PreparationSeated
    | PrefixDropped
    | PolicyFaulted
    | ReadinessChanged
)
Event: TypeAlias = RequestEvent | ScheduleEvent
