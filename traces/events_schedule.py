"""Schedule events: what became of the workload. A replay makes its own."""

from __future__ import annotations

import attrs

from .events_workload import Content
from .fields import (
    CLASSES,
    DROPS,
    FILED,
    KINDS,
    OUTCOMES,
    POLICIES,
    PREPARED,
    REUSE_KINDS,
    STATES,
    STEP_OUTCOMES,
    one_of,
)


@attrs.frozen
class Grant:
    """The device was given to a step, for ``requests`` (several in a shared decode run, none for loads and warm-ups).

    ``rows``, ``tokens`` and ``context`` are the step's shape, where it has one; ``charge`` is in bytes.
    """

    at: int
    grant: int
    step: str
    owner: str
    requests: tuple[str, ...]
    work_class: str = attrs.field(validator=one_of(CLASSES))
    kind: str = attrs.field(validator=one_of(KINDS))
    charge: int
    waited_ns: int
    resumed: bool = False
    rows: int | None = None
    tokens: int | None = None
    context: int | None = None


@attrs.frozen
class Measures:
    """What one grant used: peak workspace bytes, device time, segments; ``step_ns`` is the whole step's time so far."""

    workspace: int
    device_ns: int
    segments: int
    longest_ns: int
    step_ns: int


@attrs.frozen
class Step:
    """A grant ended, or what it had left suspended was given up.

    The latter are ``withdrawn``, ``dropped`` and ``failed`` after ``suspended``.
    """

    at: int
    grant: int
    step: str
    outcome: str = attrs.field(validator=one_of(STEP_OUTCOMES))
    measured: Measures | None = None


@attrs.frozen
class Yield:
    """The running grant was told to give way to a step, or because it was withdrawn."""

    at: int
    grant: int
    step: str
    to: str | None = None


@attrs.frozen
class Reuse:
    """What a prompt found retained, in tokens.

    It comes out of retained prefix ``handle``, or from the preparation ``taken_from`` where it stood.
    """

    at: int
    request: str
    prompt: int
    matched: int
    reused: int
    kind: str = attrs.field(validator=one_of(REUSE_KINDS))
    handle: int | None = None
    taken_from: str | None = None


@attrs.frozen
class Retain:
    """A prefix was kept: what the KV slot of ``request`` held, where it comes out of one.

    It added ``bytes`` to what is retained: its first ``shared`` tokens are stored once, with prefix ``base``.
    """

    at: int
    model: str
    handle: int
    tokens: int
    bytes: int
    request: str | None = None
    shared: int = 0
    base: int | None = None


@attrs.frozen
class Drop:
    """A retained prefix was given up; ``bytes`` are free with it, not those that others hold too."""

    at: int
    model: str
    handle: int
    tokens: int
    bytes: int
    why: str = attrs.field(validator=one_of(DROPS))


@attrs.frozen
class Tokens:
    """When a request's tokens came: the first after its arrival, each other after the one before.

    Written at its end.
    """

    at: int
    request: str
    gaps_ns: tuple[int, ...]


@attrs.frozen
class EndGeneration:
    """A generation request ended.

    ``whole`` is prompt and output together; ``output`` the output's ids at content level ``tokens``.
    """

    at: int
    request: str
    outcome: str = attrs.field(validator=one_of(OUTCOMES))
    reason: str
    prompt: int
    reused: int
    prefilled: int
    tokens: int
    whole: Content | None = None
    output: tuple[int, ...] | None = None
    error: str | None = None


@attrs.frozen
class Seat:
    """A preparation got a KV slot, for the first time or again, and goes on behind ``reused`` tokens."""

    at: int
    request: str
    reused: int
    handle: int | None = None
    taken_from: str | None = None


@attrs.frozen
class Advance:
    """``position`` of ``goal`` tokens of a preparation are there."""

    at: int
    request: str
    position: int
    goal: int


@attrs.frozen
class EndPreparation:
    """A preparation ended.

    Of ``goal`` tokens ``reused`` were retained when it began and ``computed`` were prefilled by it; ``wasted`` of those
    can't serve the request that came in its place.
    """

    at: int
    request: str
    outcome: str = attrs.field(validator=one_of(PREPARED))
    goal: int
    reused: int
    computed: int
    wasted: int = 0
    error: str | None = None


@attrs.frozen
class EndDecision:
    """A decision request ended; ``reason`` says why it abstained."""

    at: int
    request: str
    outcome: str = attrs.field(validator=one_of(OUTCOMES))
    reason: str
    rows: int
    tokens: int
    instruction_reused: int
    error: str | None = None


@attrs.frozen
class EndCheckpoint:
    """A prefix was written to a file or read back, or was not; ``tokens`` and ``bytes`` of KV state are its size."""

    at: int
    request: str
    outcome: str = attrs.field(validator=one_of(FILED))
    reason: str
    tokens: int
    bytes: int
    error: str | None = None


@attrs.frozen
class Refuse:
    """A request was never admitted; ``error`` is the type of the refusal."""

    at: int
    request: str
    error: str


@attrs.frozen
class Ready:
    """Readiness changed."""

    at: int
    revision: int
    state: str = attrs.field(validator=one_of(STATES))
    context: int
    error: str | None = None


@attrs.frozen
class LedgerState:
    """Bytes of the partition after its reservations changed."""

    at: int
    reserved: int
    used: int
    workspace: int
    partition: int


@attrs.frozen
class ChargeFault:
    """A step measured more workspace than it was charged."""

    at: int
    step: str
    charge: int
    measured: int


@attrs.frozen
class PolicyFaulted:
    """A policy misbehaved and was replaced."""

    at: int
    policy: str = attrs.field(validator=one_of(POLICIES))
    error: str
