"""A workload that is read while it is played: an imported trace, of any length, in constant memory.

The file is read twice. First through: is it whole and unchanged, how many requests has it, and where are those that
follow another's end? Only of these something is kept, their places in the file. Then, as virtual time comes to them,
the requests that stand on their own, in order; a follower is read when the request that it follows has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from ..actors.errors import TraceInvalid
from .blocks import BlockNotes
from .codec import Malformed, decode
from .events_schedule import EndGeneration
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, Content
from .format import Arrival, EndOfTrace, Event
from .header import Header
from .reader import TraceReader
from .statistics import Tally, TraceStatistics
from .workload import Item, Placed, Root, Workload, load_workload

SOURCE = "source"
_ARRIVALS = (ArriveGeneration, ArriveDecision, ArrivePreparation)


class StreamedWorkload:
    """The requests of an imported trace. Made by :func:`open_workload`; close it after it was played."""

    said = 0

    def __init__(self, path: str | Path, limit: int | None = None) -> None:
        self.size = 0
        self.recorded: TraceStatistics | None = None
        self._path = path
        self._limit = limit
        self._index: dict[str, list[tuple[int, int]]] = {}
        with TraceReader(path) as reader:
            self.header: Header = reader.header
            self.notes = BlockNotes(self.header.block_size, dense=False)
            self._scan(reader)
        if not self.size:
            raise TraceInvalid(f"trace {path} has no requests: there is nothing to replay", file=str(path))
        self._file: BinaryIO = Path(path).open("rb")  # noqa: SIM115 - closed by close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def roots(self) -> Iterator[Root]:
        """Requests that stand on their own, as ``(due, place, item)``, in that order, read as they are asked for."""
        count, held = 0, None
        with TraceReader(self._path) as reader:
            for event in reader:
                if held is not None:
                    yield held.at, 2 * (count - 1), _item(held, event)
                    held = None
                if count == self.size:
                    return
                if isinstance(event, _ARRIVALS):
                    count += 1
                    held = event if event.think_ns is None else None
        if held is not None:
            yield held.at, 2 * (count - 1), _item(held, None)

    def followers(self, request: str) -> Sequence[Placed]:
        """Requests that follow the end of another, read from their places."""
        found = []
        for offset, place in self._index.pop(request, ()):
            self._file.seek(offset)
            arrival, after = decode(self._file.readline()), decode(self._file.readline())
            if isinstance(arrival, _ARRIVALS):
                found.append((place, _item(arrival, after)))
        return found

    def missing(self, open_requests: Collection[str]) -> Sequence[tuple[str, str]]:
        """Requests that follow ends that have not come, and whose."""
        leaders = list(self._index)
        return [(item.request, leader) for leader in leaders for _, item in self.followers(leader)]

    def _learn(self, reader: TraceReader, event: Arrival) -> None:
        try:
            for content in _contents(event):
                self.notes.learn(content)
        except Malformed as error:
            raise reader.invalid(str(error)) from None

    def _scan(self, reader: TraceReader) -> None:
        """Read the file once through: its requests are counted, and followers are put down with their places."""
        tally = Tally() if self.header.ends else None
        for event in reader:
            if tally is not None:
                tally.add(event)
            if self.size == self._limit or not isinstance(event, _ARRIVALS):
                continue
            self._learn(reader, event)
            if event.think_ns is not None:
                self._index.setdefault(str(event.after), []).append((reader.offset, 2 * self.size))
            self.size += 1
        if tally is not None:
            self.recorded = tally.result()


def open_workload(path: str | Path, limit: int | None = None) -> Workload | StreamedWorkload:
    """A trace's workload: streamed when it was imported, else held whole; with ``limit`` the first so many requests.

    Raises ``TraceInvalid``.
    """
    with TraceReader(path) as reader:
        imported = reader.header.block_scope == SOURCE
    return StreamedWorkload(path, limit) if imported else load_workload(path, limit)


def _item(arrival: Arrival, after: Event | EndOfTrace | None) -> Item:
    """A request, with the failure that its source tells of right behind it."""
    fails = isinstance(after, EndGeneration) and after.request == arrival.request and after.outcome == "failed"
    due = arrival.at if arrival.think_ns is None else None
    return Item(arrival, due, ending=after if fails and isinstance(after, EndGeneration) else None)


def _contents(arrival: Arrival) -> tuple[Content, ...]:
    match arrival:
        case ArriveGeneration(prompt=prompt):
            return (prompt,)
        case ArriveDecision(instruction=instruction, rows=rows):
            return (instruction, *rows)
        case ArrivePreparation(known=known):
            return (known,)
