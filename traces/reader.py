"""Reading a trace in constant memory: line by line, in order, checked.

What a reader promises: events come in time order; grants only grow; an event of a request comes between its arrival
and its end; and when the iteration has ended without an error, the file is whole and unchanged. Any other file raises
``TraceInvalid`` naming the file, line, field and value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

from ..actors.errors import TraceInvalid
from .codec import Malformed, decode, decode_header, parse
from .events_schedule import (
    Advance,
    EndDecision,
    EndGeneration,
    EndPreparation,
    Grant,
    Refuse,
    Reuse,
    Seat,
    Step,
    Tokens,
)
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest
from .foreign import recognise
from .format import MAX_LINE, READABLE, SCHEMA, EndOfTrace, Event
from .header import Header

_SNIFFED = 64 * 1024


class TraceReader:
    """Iterate it, once, for the events.

    ``header`` is there from the start, ``line`` is the number of the latest line and ``offset`` where it begins.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.line = 0
        self.offset = 0
        self._next = 0
        self._digest = hashlib.sha256()
        try:
            self._file: BinaryIO = self.path.open("rb")
        except OSError as error:
            raise TraceInvalid(f"trace {path}: {error.strerror or error}", file=str(path)) from error
        try:
            self.header = self._read_header()
            self._order = _Order(self.header.ends)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Event]:
        events = 0
        while True:
            line = self._next_line(f"after {events} events")
            with self._naming():
                event = decode(line)
                if not isinstance(event, EndOfTrace):
                    self._order.check(event)
            if isinstance(event, EndOfTrace):
                self._check_end(event, events)
                return
            self._digest.update(line)
            events += 1
            yield event

    def invalid(self, what: str) -> TraceInvalid:
        """An error about the latest line."""
        return TraceInvalid(f"trace {self.path}, line {self.line}: {what}", file=str(self.path), line=self.line)

    # --- lines --------------------------------------------------------------------------------------------------

    def _read_header(self) -> Header:
        head = self._file.read(_SNIFFED)
        self._file.seek(0)
        foreign = recognise(head)
        if foreign is not None:
            advice = f"; {foreign.advice}" if foreign.importable else ""
            raise TraceInvalid(
                f"trace {self.path} is {foreign.what}: this version reads traces recorded by coresident "
                f"({SCHEMA}, version {_listed()}){advice}",
                file=str(self.path),
                format=foreign.what,
            )
        line = self._next_line("in its header")
        with self._naming():
            data = parse(line)
        if data.get("schema") != SCHEMA:
            raise self.invalid(f"schema is {data.get('schema')!r}: {SCHEMA!r} is read")
        if data.get("version") not in READABLE or type(data["version"]) is not int:
            raise self.invalid(
                f"version is {data.get('version')!r}: this coresident reads version {_listed()}; "
                "read it with the version that wrote it, or record it again"
            )
        self._digest.update(line)
        with self._naming():
            return decode_header(data)

    def _next_line(self, where: str) -> bytes:
        self.line += 1
        try:
            line = self._file.readline(MAX_LINE)
        except OSError as error:
            raise self.invalid(f"cannot be read: {error}") from error
        self.offset, self._next = self._next, self._next + len(line)
        if not line:
            self.line -= 1
            raise self.invalid(
                f"the trace ends here, {where}, without its last line: it was cut, or is still being written"
            )
        if not line.endswith(b"\n"):
            longer = len(line) >= MAX_LINE
            raise self.invalid(
                f"longer than {MAX_LINE} bytes" if longer else f"the trace is cut within this line, {where}"
            )
        return line

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """What is wrong with the latest line, with the file's name."""
        try:
            yield
        except Malformed as error:
            raise self.invalid(str(error)) from None

    def _check_end(self, end: EndOfTrace, events: int) -> None:
        digest = self._digest.hexdigest()
        if end.events != events:
            raise self.invalid(f"events is {end.events}, but {events} were read: lines are missing or were added")
        if end.sha256 != digest:
            raise self.invalid(f"sha256 is {end.sha256!r}, but the lines before have {digest!r}: the trace was changed")
        if not end.complete:
            raise self.invalid(f"complete is false: the recorder failed here ({end.error or 'it does not say why'})")
        if self._file.read(1):
            self.line += 1
            raise self.invalid("there is more after the end of the trace")


class _Order:
    """The order that events of one trace must keep; holds only what is open.

    Where ends are not told, only the latest arrival is: its end can only come next, and ids ascend.
    """

    def __init__(self, ends: bool = True) -> None:
        self._ends = ends
        self._latest = (0, "")
        self._at = 0
        self._grant = 0
        self._open: set[str] = set()
        self._preparing: set[str] = set()

    def check(self, event: Event) -> None:
        """Raises :class:`Malformed`."""
        if event.at < self._at:
            raise Malformed(f"at is {event.at}, before the event ahead of it at {self._at}")
        self._at = event.at
        match event:
            case ArriveGeneration() | ArriveDecision() | ArrivePreparation():
                if event.request in self._open:
                    raise Malformed(f"request is {event.request!r}, which has already arrived")
                if not self._ends:
                    self._ascend(event.request)
                self._open.add(event.request)
                if isinstance(event, ArrivePreparation):
                    self._preparing.add(event.request)
            case EndGeneration() | EndDecision() | EndPreparation() | Refuse():
                self._must_be_open(event.request)
                if isinstance(event, EndPreparation):
                    self._must_prepare(event.request)
                self._open.remove(event.request)
                self._preparing.discard(event.request)
            case Seat() | Advance():
                self._must_prepare(event.request)
            case CancelRequest() | Tokens() | Reuse():
                self._must_be_open(event.request)
            case Grant(grant=grant):
                if grant <= self._grant:
                    raise Malformed(f"grant is {grant}, not after grant {self._grant} before it")
                self._grant = grant
            case Step(grant=grant):
                if not 1 <= grant <= self._grant:
                    raise Malformed(f"grant is {grant}: the latest grant is {self._grant}")
            case _:
                pass

    def _ascend(self, request: str) -> None:
        """By length, then by text: ids that end in a growing number."""
        place = (len(request), request)
        if place <= self._latest:
            raise Malformed(f"request is {request!r}, not after {self._latest[1]!r}: ids ascend where no ends are told")
        self._latest = place
        self._open.clear()
        self._preparing.clear()

    def _must_prepare(self, request: str) -> None:
        self._must_be_open(request)
        if request not in self._preparing:
            raise Malformed(f"request is {request!r}, which is not a preparation")

    def _must_be_open(self, request: str) -> None:
        if request not in self._open:
            raise Malformed(f"request is {request!r}, which has not arrived or has ended")


def _listed() -> str:
    return ", ".join(map(str, READABLE))
