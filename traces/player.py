"""The state machine that plays a workload.

Rule 1: roots come open loop, each at its recorded time after readiness, however slow the replay is. Rule 2: a request
with a think time comes that long after the end of the request it names. Rule 3: a cancel comes when its request has
made as many tokens as then, and the recorded time later; at the latest when one more token is seen. A preparation
makes none: its cancel comes at the recorded time after its submission. Rule 4: what was said about retained prefixes
comes at its recorded time, like a root.

It reads no clock and does no I/O. A driver tells it what has happened, and takes what is due: one command at a time,
so that each can take effect before the next.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

import attrs

from .events_workload import ArriveDecision
from .workload import Item, Wish, Workload


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


@attrs.define
class _Open:
    item: Item
    tokens: int = 0
    abandoned: bool = False


class Player:
    """Plays one workload, once."""

    def __init__(self, workload: Workload) -> None:
        self._roots: list[tuple[int, int, Item | Wish]] = [(wish.due, wish.place, wish) for wish in workload.wishes]
        self._roots += [(item.due, place, item) for place, item in enumerate(workload.items) if item.due is not None]
        self._followers: dict[str, list[Item]] = {}
        for item in workload.items:
            if item.due is None:
                self._followers.setdefault(str(item.arrival.after), []).append(item)
        self._left = len(workload.items) + len(workload.wishes)
        self._due: list[tuple[int, int, Item | Wish, bool]] = []
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

    def start(self, at: int) -> None:
        """The scheduler is ready."""
        for due, _, item in sorted(self._roots, key=lambda root: root[:2]):
            self._push(at + due, item)
        self._roots = []

    def pop(self, at: int) -> Command | None:
        """The next command that is due, if any."""
        while self._due and self._due[0][0] <= at:
            due, _, item, cancel = heapq.heappop(self._due)
            if isinstance(item, Wish):
                self._left -= 1
                return item
            if not cancel:
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
            self._push(at + cancel.after_ns, entry.item, cancel=True)
        elif entry.tokens == cancel.after_tokens + 1:
            self._push(at, entry.item, cancel=True)

    def ended(self, request: str, at: int) -> None:
        """A request has ended, refused ones included."""
        del self._open[request]
        self._left -= 1
        for item in self._followers.pop(request, ()):
            self._push(at + (item.arrival.think_ns or 0), item)

    def _submitted(self, item: Item, at: int) -> None:
        self._open[item.request] = _Open(item)
        if item.cancel is not None and item.cancel.after_tokens == 0:
            self._push(at + item.cancel.after_ns, item, cancel=True)

    def _push(self, due: int, item: Item | Wish, cancel: bool = False) -> None:
        self._count += 1
        heapq.heappush(self._due, (due, self._count, item, cancel))
