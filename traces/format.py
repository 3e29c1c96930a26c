"""The trace format: one JSON object a line, a header first, a sealing line last.

Line 1 is the :class:`~coresident.traces.header.Header`. Every further line is an event: its ``type`` from the table
:data:`EVENTS`, ``at`` in integer nanoseconds from the first message of the recording, and the fields of its class,
those at their default left out. The last line is an ``end_of_trace`` with the number of events and the SHA-256 of all
lines before it, so a cut or changed file is known as such.

Where the header has ``facts``, a ``took`` line ends the lines of every delivery: which actor took which message, with a
digest of what came of it. :mod:`.events_messages` has its fields, and what they leave to the other lines.

Workload events say what was asked, and are what a replay submits again: ``arrive.*``, ``cancel``, ``pin`` and
``release``; but not ``arrive.checkpoint``, as files are no part of a trace. All others say what the schedule made of
it. Unknown types and fields are errors. Types and fields may be added within a version, the fields with a default, so
that every earlier file of the version is still read; what changes or goes takes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from .events_messages import Took
from .events_schedule import (
    Advance,
    ChargeFault,
    Drop,
    EndCheckpoint,
    EndDecision,
    EndGeneration,
    EndPreparation,
    Grant,
    LedgerState,
    PolicyFaulted,
    Ready,
    Refuse,
    Retain,
    Reuse,
    Seat,
    Step,
    Tokens,
    Yield,
)
from .events_workload import (
    ArriveCheckpoint,
    ArriveDecision,
    ArriveGeneration,
    ArrivePreparation,
    CancelRequest,
    Pin,
    Release,
)

SCHEMA = "coresident.trace"
VERSION = 1
READABLE = (1,)
END = "end_of_trace"
MAX_LINE = 64 * 1024**2


@attrs.frozen
class EndOfTrace:
    """The last line.

    ``sha256`` covers every line before it, the header included; ``error`` says why it is not complete.
    """

    events: int
    sha256: str
    complete: bool
    error: str | None = None


Arrival: TypeAlias = ArriveGeneration | ArriveDecision | ArrivePreparation
Ending: TypeAlias = EndGeneration | EndDecision | EndPreparation | Refuse
Event: TypeAlias = (
    Arrival
    | ArriveCheckpoint
    | CancelRequest
    | Pin
    | Release
    | Grant
    | Step
    | Yield
    | Reuse
    | Retain
    | Drop
    | Tokens
    | Seat
    | Advance
    | Ending
    | EndCheckpoint
    | Ready
    | LedgerState
    | ChargeFault
    | PolicyFaulted
    | Took
)

EVENTS: Mapping[str, type[Any]] = {
    "arrive.generation": ArriveGeneration,
    "arrive.decision": ArriveDecision,
    "arrive.preparation": ArrivePreparation,
    "arrive.checkpoint": ArriveCheckpoint,
    "cancel": CancelRequest,
    "pin": Pin,
    "release": Release,
    "grant": Grant,
    "step": Step,
    "yield": Yield,
    "prefix.reused": Reuse,
    "prefix.retained": Retain,
    "prefix.dropped": Drop,
    "tokens": Tokens,
    "preparation.seated": Seat,
    "preparation.advanced": Advance,
    "end.generation": EndGeneration,
    "end.decision": EndDecision,
    "end.preparation": EndPreparation,
    "end.checkpoint": EndCheckpoint,
    "refuse": Refuse,
    "ready": Ready,
    "ledger": LedgerState,
    "fault.charge": ChargeFault,
    "fault.policy": PolicyFaulted,
    "took": Took,
}
