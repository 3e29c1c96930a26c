"""The workload of a trace: its requests, what they wait for, and what became of them when they were recorded."""

from __future__ import annotations

from pathlib import Path

import attrs

from ..actors.errors import TraceInvalid
from .blocks import BlockNotes
from .codec import Malformed
from .events_schedule import EndDecision, EndGeneration, EndPreparation, Ready, Refuse
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest, Pin, Release
from .format import Arrival, Ending, Event
from .header import Header
from .outcomes import Outcome, recorded_outcome
from .reader import TraceReader
from .statistics import Tally, TraceStatistics


@attrs.frozen
class Item:
    """One request. ``due`` counts nanoseconds from readiness; it is ``None`` for one that follows another's end."""

    arrival: Arrival
    due: int | None
    cancel: CancelRequest | None = None
    ending: Ending | None = None

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


@attrs.frozen
class Workload:
    """The requests of a trace in order of arrival, notes on their content, and the statistics of the recorded run."""

    header: Header
    items: tuple[Item, ...]
    notes: BlockNotes
    recorded: TraceStatistics
    wishes: tuple[Wish, ...] = ()


class _Loader:
    """Collects what belongs to each request."""

    def __init__(self, header: Header) -> None:
        self.notes = BlockNotes(header.block_size)
        self.tally = Tally()
        self.wishes: list[Wish] = []
        self._ready: int | None = None
        self._roots: dict[str, int] = {}
        self._arrivals: dict[str, Arrival] = {}
        self._cancels: dict[str, CancelRequest] = {}
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
                self._cancels.setdefault(request, event)
            case EndGeneration(request=request):
                self._endings[request] = event
                if event.whole is not None:
                    self.notes.learn(event.whole)
            case EndDecision() | EndPreparation() | Refuse():
                self._endings[event.request] = event
            case Ready(state="ready") if self._ready is None:
                self._ready = event.at
            case _:
                pass
        self.tally.add(event)

    def items(self) -> tuple[Item, ...]:
        return tuple(
            Item(arrival, self._roots.get(request), self._cancels.get(request), self._endings.get(request))
            for request, arrival in self._arrivals.items()
        )

    def _arrive(self, event: Arrival) -> None:
        if event.request in self._arrivals:
            raise Malformed(f"request is {event.request!r}, which arrived before: ids are unique in a trace")
        self._arrivals[event.request] = event
        if event.think_ns is None:
            self._roots[event.request] = max(0, event.at - (self._ready or 0))
        elif event.after not in self._endings:
            raise Malformed(f"after is {event.after!r}, which has not ended before, but think_ns is {event.think_ns}")


def load_workload(path: str | Path) -> Workload:
    """Read a trace to its end; what is held grows with its requests, not with its schedule. Raises ``TraceInvalid``."""
    with TraceReader(path) as reader:
        loader = _Loader(reader.header)
        for event in reader:
            try:
                loader.add(event)
            except Malformed as error:
                raise reader.invalid(str(error)) from None
        items = loader.items()
        if not items:
            raise TraceInvalid(f"trace {path} has no requests: there is nothing to replay", file=str(path))
        return Workload(reader.header, items, loader.notes, loader.tally.result(), tuple(loader.wishes))
