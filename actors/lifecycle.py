"""Lifecycles as tables: one table per kind of thing, one place that refuses what the table does not have.

Rule: a state changes only through :meth:`Lifecycle.to`. An event that the table does not have for the current state
raises ``InvalidTransition`` with the history of the thing, so the error tells the story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

from .errors import InvalidTransition

Table: TypeAlias = Mapping[tuple[str, str], str]

DEVICE: Table = {
    ("idle", "grant"): "running",
    ("running", "yield"): "yielding",
    ("running", "end"): "settling",
    ("yielding", "end"): "settling",
    ("running", "suspend"): "idle",
    ("yielding", "suspend"): "idle",
    ("running", "fault"): "faulted",
    ("yielding", "fault"): "faulted",
    ("settling", "settle"): "idle",
    ("faulted", "reset"): "idle",
    ("idle", "close"): "closed",
    ("faulted", "close"): "closed",
}

STEP: Table = {
    ("waiting", "grant"): "granted",
    ("granted", "suspend"): "suspended",
    ("suspended", "grant"): "granted",
    ("suspended", "drop"): "waiting",
    ("waiting", "withdraw"): "ended",
    ("suspended", "withdraw"): "ended",
    ("granted", "end"): "ended",
    ("waiting", "fault"): "ended",
    ("suspended", "fault"): "ended",
}

GENERATION: Table = {
    ("queued", "restore"): "restoring",
    ("queued", "prefill"): "prefilling",
    ("restoring", "prefill"): "prefilling",
    ("prefilling", "decode"): "decoding",
    ("queued", "end"): "ended",
    ("restoring", "end"): "ended",
    ("prefilling", "end"): "ended",
    ("decoding", "end"): "ended",
    ("restoring", "save"): "saving",
    ("prefilling", "save"): "saving",
    ("decoding", "save"): "saving",
    ("saving", "end"): "ended",
}

DECISION: Table = {
    ("queued", "instruct"): "instructing",
    ("queued", "score"): "scoring",
    ("instructing", "score"): "scoring",
    ("queued", "end"): "ended",
    ("instructing", "end"): "ended",
    ("scoring", "end"): "ended",
}

READINESS: Table = {
    ("new", "start"): "starting",
    ("starting", "ready"): "ready",
    ("starting", "fault"): "faulted",
    ("ready", "fault"): "faulted",
    ("faulted", "recover"): "recovering",
    ("recovering", "ready"): "ready",
    ("recovering", "fault"): "faulted",
    ("new", "close"): "closing",
    ("starting", "close"): "closing",
    ("ready", "close"): "closing",
    ("faulted", "close"): "closing",
    ("recovering", "close"): "closing",
    ("closing", "closed"): "closed",
}

TABLES: Mapping[str, Table] = {
    "device": DEVICE,
    "step": STEP,
    "generation": GENERATION,
    "decision": DECISION,
    "readiness": READINESS,
}


class Lifecycle:
    """The state of one thing, changed only along its table; remembers its last 32 changes."""

    def __init__(self, kind: str, name: str, state: str) -> None:
        self.kind = kind
        self.name = name
        self.state = state
        self._table = TABLES[kind]
        self._history: deque[tuple[str, str]] = deque([("", state)], maxlen=32)

    def to(self, event: str) -> str:
        """Follow the table; the new state. Raises ``InvalidTransition``."""
        after = self._table.get((self.state, event))
        if after is None:
            allowed = sorted(name for state, name in self._table if state == self.state)
            history = tuple(f"-{event}-> {state}" if event else state for event, state in self._history)
            raise InvalidTransition(
                f"{self.kind} {self.name} cannot {event} while {self.state} "
                f"(it can: {', '.join(allowed) or 'nothing'}); history: {' '.join(history)}",
                state=self.state,
                event=event,
                history=history,
            )
        self.state = after
        self._history.append((event, after))
        return after

    def can(self, event: str) -> bool:
        """Whether the table has ``event`` for the current state."""
        return (self.state, event) in self._table
