"""The state machine that plays a workload.

Rule 1: roots come open loop, each at its recorded time after readiness, however slow the replay is. Rule 2: a request
with a think time comes that long after the end of the request it names. Rule 3: a cancel comes when its request has
made as many tokens as then, and the recorded time later; at the latest when one more token is seen. A preparation
makes none: its cancel comes at the recorded time after its submission. Rule 4: what was said about retained prefixes
comes at its recorded time, like a root. Rule 5: what is due at one time comes in the order of the recording.

It reads no clock and does no I/O. A driver tells it what has happened, and takes what is due: one command at a time,
so that each can take effect before the next.
"""

from __future__ import annotations

import heapq
from enum import Enum, auto
from typing import TypeAlias

import attrs

from .events_workload import ArriveDecision
from .workload import Item, Playable, Wish


@attrs.frozen
class Submit:
    """Submit a request now."""

    item: Item


@attrs.frozen
class Abandon:
    """Cancel a request now; ``role`` is the actor that has it."""

    role: str
    request: str
    reason: str


Command: TypeAlias = Submit | Abandon | Wish


class _Kind(Enum):
    ROOT = auto()
    FOLLOWER = auto()
    CANCEL = auto()


@attrs.define
class _Open:
    item: Item
    tokens: int = 0
    abandoned: bool = False


class Player:
    """Plays one workload, once."""

    def __init__(self, workload: Playable) -> None:
        self._workload = workload
        self._roots = workload.roots()
        self._started: int | None = None
        self._left = workload.size + workload.said
        self._due: list[tuple[int, int, int, Item | Wish, _Kind]] = []
        self._count = 0
        self._open: dict[str, _Open] = {}
        self.drifts: list[int] = []

    @property
    def done(self) -> bool:
        """Whether every request has ended, and nothing else is left to be said."""
        return self._left == 0

    @property
    def next_at(self) -> int | None:
        """When the next command is due, as far as is known now."""
        return self._due[0][0] if self._due else None

    @property
    def open(self) -> tuple[str, ...]:
        """Requests that were submitted and have not ended, in order."""
        return tuple(self._open)

    def missing(self) -> tuple[tuple[str, str], ...]:
        """Requests that were never due, and whose end they follow."""
        return tuple(self._workload.missing(self._open))

    def start(self, at: int) -> None:
        """The scheduler is ready."""
        self._started = at
        self._next_root()

    def pop(self, at: int) -> Command | None:
        """The next command that is due, if any."""
        while self._due and self._due[0][0] <= at:
            due, _, _, item, kind = heapq.heappop(self._due)
            if kind is _Kind.ROOT:
                self._next_root()
            if isinstance(item, Wish):
                self._left -= 1
                return item
            if kind is not _Kind.CANCEL:
                self.drifts.append(at - due)
                self._submitted(item, at)
                return Submit(item)
            entry = self._open.get(item.request)
            if entry is not None and item.cancel is not None and not entry.abandoned:
                entry.abandoned = True
                role = "decision" if isinstance(item.arrival, ArriveDecision) else "generation"
                return Abandon(role, item.request, item.cancel.reason)
        return None

    def token(self, request: str, at: int) -> None:
        """A token of a request was seen."""
        entry = self._open.get(request)
        if entry is None:
            return
        entry.tokens += 1
        cancel = entry.item.cancel
        if cancel is None:
            return
        if entry.tokens == cancel.after_tokens:
            self._push_cancel(at + cancel.after_ns, entry.item)
        elif entry.tokens == cancel.after_tokens + 1:
            self._push_cancel(at, entry.item)

    def ended(self, request: str, at: int) -> None:
        """A request has ended, refused ones included."""
        del self._open[request]
        self._left -= 1
        for place, item in self._workload.followers(request):
            self._push(at + (item.arrival.think_ns or 0), place, item, _Kind.FOLLOWER)

    def _submitted(self, item: Item, at: int) -> None:
        self._open[item.request] = _Open(item)
        if item.cancel is not None and item.cancel.after_tokens == 0:
            self._push_cancel(at + item.cancel.after_ns, item)

    def _next_root(self) -> None:
        """Only the next one is held: a workload may be read as it is played."""
        root = next(self._roots, None)
        if root is not None and self._started is not None:
            due, place, item = root
            self._push(self._started + due, place, item, _Kind.ROOT)

    def _push_cancel(self, due: int, item: Item) -> None:
        self._push(due, 2 * item.behind - 1, item, _Kind.CANCEL)

    def _push(self, due: int, place: int, item: Item | Wish, kind: _Kind) -> None:
        self._count += 1
        heapq.heappush(self._due, (due, place, self._count, item, kind))
