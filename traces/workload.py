"""The workload of a trace: its requests, what they wait for, and what became of them when they were recorded.

A recording's workload is held whole, for its notes on content. One that was imported may be of any length:
``streaming.py`` reads it as it is played. A player takes either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import attrs

from ..actors.errors import TraceInvalid
from .blocks import BlockNotes
from .codec import Malformed
from .events_messages import Took
from .events_schedule import EndDecision, EndGeneration, EndPreparation, Ready, Refuse
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest, Pin, Release
from .format import Arrival, Ending, Event
from .header import Header
from .outcomes import Outcome, recorded_outcome
from .reader import TraceReader
from .statistics import Tally, TraceStatistics


@attrs.frozen
class Item:
    """One request.

    ``due`` counts nanoseconds from readiness; it is ``None`` for one that follows another's end. ``behind`` counts the
    requests that had arrived before its cancel.
    """

    arrival: Arrival
    due: int | None
    cancel: CancelRequest | None = None
    ending: Ending | None = None
    behind: int = 0

    @property
    def request(self) -> str:
        return self.arrival.request

    @property
    def outcome(self) -> Outcome | None:
        """How it ended when recorded; ``None`` when the recording did not see it."""
        return None if self.ending is None else recorded_outcome(self.ending)


@attrs.frozen
class Wish:
    """What was said about retained prefixes: ``due`` nanoseconds after readiness, behind ``place`` requests."""

    due: int
    place: int
    event: Pin | Release


Placed: TypeAlias = tuple[int, Item]
Root: TypeAlias = tuple[int, int, Item | Wish]


class Playable(Protocol):
    """What a player plays.

    Times being equal, what happens has the order of the recording: a ``place`` is twice the number of requests that
    arrived before, less one for what is no arrival.
    """

    @property
    def header(self) -> Header: ...

    @property
    def notes(self) -> BlockNotes: ...

    @property
    def size(self) -> int:
        """Requests."""
        ...

    @property
    def said(self) -> int:
        """What was said about retained prefixes."""
        ...

    def roots(self) -> Iterator[Root]:
        """What stands on its own, as ``(due, place, what)``, in that order."""
        ...

    def followers(self, request: str) -> Sequence[Placed]:
        """Requests that follow the end of another, with their places."""
        ...

    def missing(self, open_requests: Collection[str]) -> Sequence[tuple[str, str]]:
        """Requests that follow, at whatever distance, ends that have not come, and whose."""
        ...


@attrs.frozen
class Workload:
    """The requests of a trace in order of arrival, notes on their content, and the statistics of the recorded run."""

    header: Header
    items: tuple[Item, ...]
    notes: BlockNotes
    recorded: TraceStatistics
    wishes: tuple[Wish, ...] = ()
    _followers: dict[str, list[Placed]] = attrs.field(init=False, eq=False)

    @_followers.default
    def _by_leader(self) -> dict[str, list[Placed]]:
        followers: dict[str, list[Placed]] = {}
        for index, item in enumerate(self.items):
            if item.due is None:
                followers.setdefault(str(item.arrival.after), []).append((2 * index, item))
        return followers

    def close(self) -> None:
        """Nothing is open."""

    @property
    def size(self) -> int:
        """Requests."""
        return len(self.items)

    @property
    def said(self) -> int:
        """What was said about retained prefixes."""
        return len(self.wishes)

    def roots(self) -> Iterator[Root]:
        """What stands on its own, as ``(due, place, what)``, in that order."""
        roots: list[Root] = [(wish.due, 2 * wish.place - 1, wish) for wish in self.wishes]
        roots += [(item.due, 2 * index, item) for index, item in enumerate(self.items) if item.due is not None]
        return iter(sorted(roots, key=lambda root: root[:2]))

    def followers(self, request: str) -> Sequence[Placed]:
        """Requests that follow the end of another, with their places."""
        return self._followers.get(request, ())

    def missing(self, open_requests: Collection[str]) -> Sequence[tuple[str, str]]:
        """Requests that follow, at whatever distance, ends that have not come, and whose."""
        found: list[tuple[str, str]] = []
        leaders = deque(open_requests)
        while leaders:
            leader = leaders.popleft()
            followers = [item.request for _, item in self.followers(leader)]
            found += [(request, leader) for request in followers]
            leaders += followers
        return found


class _Loader:
    """Collects what belongs to each request."""

    def __init__(self, header: Header) -> None:
        self.notes = BlockNotes(header.block_size, dense=header.block_scope == "trace")
        self.tally = Tally()
        self._ends = header.ends
        self.wishes: list[Wish] = []
        self._ready: int | None = None
        self._roots: dict[str, int] = {}
        self._arrivals: dict[str, Arrival] = {}
        self._cancels: dict[str, tuple[CancelRequest, int]] = {}
        self._endings: dict[str, Ending] = {}

    def add(self, event: Event) -> None:
        """Take one event. Raises :class:`Malformed`."""
        match event:
            case ArriveGeneration():
                self._arrive(event)
                self.notes.learn(event.prompt)
            case ArriveDecision():
                self._arrive(event)
                for content in (event.instruction, *event.rows):
                    self.notes.learn(content)
            case ArrivePreparation():
                self._arrive(event)
                self.notes.learn(event.known)
            case Pin() | Release():
                self.wishes.append(Wish(max(0, event.at - (self._ready or 0)), len(self._arrivals), event))
            case CancelRequest(request=request):
                self._cancels.setdefault(request, (event, len(self._arrivals)))
            case EndGeneration(request=request):
                self._endings[request] = event
                if event.whole is not None:
                    self.notes.learn(event.whole)
            case EndDecision() | EndPreparation() | Refuse():
                self._endings[event.request] = event
            case Took(given=given) if given is not None:
                # Sequences that are told nowhere else have numbered blocks too: of files, of ids given twice.
                for content in given.contents():
                    self.notes.learn(content)
            case Ready(state="ready") if self._ready is None:
                self._ready = event.at
            case _:
                pass
        self.tally.add(event)

    def items(self) -> Iterator[Item]:
        for request, arrival in self._arrivals.items():
            cancel, behind = self._cancels.get(request, (None, 0))
            yield Item(arrival, self._roots.get(request), cancel, self._endings.get(request), behind)

    def _arrive(self, event: Arrival) -> None:
        if event.request in self._arrivals:
            raise Malformed(f"request is {event.request!r}, which arrived before: ids are unique in a trace")
        self._arrivals[event.request] = event
        if event.think_ns is None:
            self._roots[event.request] = max(0, event.at - (self._ready or 0))
        elif event.after not in (self._endings if self._ends else self._arrivals):
            happened = "ended" if self._ends else "arrived"
            raise Malformed(
                f"after is {event.after!r}, which has not {happened} before, but think_ns is {event.think_ns}"
            )


def load_workload(path: str | Path, limit: int | None = None) -> Workload:
    """Read a trace to its end; what is held grows with its requests, not with its schedule.

    With ``limit`` the workload has the first so many requests, and what was said before them. Raises ``TraceInvalid``.
    """
    with TraceReader(path) as reader:
        loader = _Loader(reader.header)
        for event in reader:
            try:
                loader.add(event)
            except Malformed as error:
                raise reader.invalid(str(error)) from None
        items = tuple(loader.items())[:limit]
        if not items:
            raise TraceInvalid(f"trace {path} has no requests: there is nothing to replay", file=str(path))
        wishes = tuple(wish for wish in loader.wishes if wish.place <= len(items))
        return Workload(reader.header, items, loader.notes, loader.tally.result(), wishes)
