"""Message lines: which message an actor took, in order, so that an audit can feed the same ones to other actors.

A ``took`` line comes behind the other lines of its delivery. A message that another actor sent is not written: it is
the oldest that is on its way to that actor, since every mailbox keeps its order. One from outside (a client, a timer,
the device) has a ``given`` with what the other lines of its delivery don't say. Errors are written as their types,
paths and token ids not at all.
"""

from __future__ import annotations

import attrs

from .events_schedule import Measures
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, Content
from .fields import KINDS, STEP_OUTCOMES, one_of


@attrs.frozen
class Fault:
    """An error by its type; ``base`` is the nearest type of the library's where it is not one itself."""

    error: str
    base: str = ""


@attrs.frozen
class RowTold:
    """What one request got from a step: so many tokens, why it stops, and what ended it alone."""

    request: str
    tokens: int
    stop: str | None = None
    error: Fault | None = None


@attrs.frozen
class RowScored:
    """Raw values of one decision row, head by head, as decimal texts, since they need not be finite."""

    index: int
    values: tuple[str, ...]


@attrs.frozen
class Ended:
    """What a grant's end says besides its ``step`` line; all of it where there is no such line."""

    rows: tuple[RowTold, ...] = ()
    scores: tuple[RowScored, ...] = ()
    error: Fault | None = None
    sticky: bool = False
    shown: tuple[str, ...] = ()
    grant: int | None = None
    outcome: str | None = attrs.field(default=None, validator=attrs.validators.optional(one_of(STEP_OUTCOMES)))
    measured: Measures | None = None


@attrs.frozen
class File:
    """The prefix of a file that is to be stored or fetched; ``aligned`` and ``chunk`` are those of one to fetch."""

    content: Content
    identity: str
    aligned: int = 0
    chunk: int = 0


@attrs.frozen
class Given:
    """A message from outside: what the other lines of its delivery don't say of it.

    ``origin`` comes with the first message: what the host's clock showed then. ``overdue_ns`` is how long a request's
    deadline had passed at its arrival. ``generation``, ``decision`` and ``preparation`` are requests whose id was open
    already, which have no line of their own.
    """

    origin: int | None = None
    request: str | None = None
    reason: str | None = None
    action: str | None = None
    overdue_ns: int = 0
    generation: ArriveGeneration | None = None
    decision: ArriveDecision | None = None
    preparation: ArrivePreparation | None = None
    file: File | None = None
    ended: Ended | None = None
    error: Fault | None = None

    def contents(self) -> tuple[Content, ...]:
        """Token sequences in it, in the order in which their blocks were numbered."""
        found: tuple[Content, ...] = ()
        if self.generation is not None:
            found += (self.generation.prompt,)
        if self.decision is not None:
            found += (self.decision.instruction, *self.decision.rows)
        if self.preparation is not None:
            found += (self.preparation.known,)
        return found if self.file is None else (*found, self.file.content)


@attrs.frozen
class Charge:
    """Workspace bytes that the backend charged for a shape.

    Only those that differ from the latest written one of the same model, kind, rows and tokens.
    """

    model: str
    kind: str = attrs.field(validator=one_of(KINDS))
    rows: int
    tokens: int
    context: int
    charge: int


@attrs.frozen
class Took:
    """An actor took a message. ``charges`` were asked of the backend meanwhile.

    ``digest`` covers this message and what the actor wanted done because of it, and all before it:
    :mod:`.audit_digest` has the form.
    """

    at: int
    actor: str
    message: str
    digest: str
    given: Given | None = None
    charges: tuple[Charge, ...] = ()
