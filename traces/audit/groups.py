"""The lines of a trace, delivery by delivery, with as much read ahead as a delivery needs.

What a request generates is told at its end: a delivery that brings tokens is held back until the ends of their requests
have been read. So what is held grows with the longest request, not with the trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from ..codec import Malformed
from ..events_messages import Took
from ..events_schedule import EndGeneration
from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from ..format import Event
from ..reader import TraceReader
from .tokens import AuditTokens


@attrs.frozen
class Group:
    """The lines of one delivery; ``line`` is the number of its ``took`` line."""

    line: int
    took: Took
    events: tuple[Event, ...]


class Groups:
    """Iterate it, once, for the groups. ``tokens`` knows the contents of all that was read."""

    def __init__(self, reader: TraceReader) -> None:
        self.tokens = AuditTokens(reader.header.block_size)
        self._reader = reader
        self._source = self._read()
        self._ahead: deque[Group] = deque()
        self._ends: dict[str, deque[EndGeneration]] = {}
        self._outputs: dict[str, deque[int]] = {}
        self._untold = 0

    def __iter__(self) -> Iterator[Group]:
        while self._ahead or self._more():
            group = self._ahead.popleft()
            yield group
            self._pass(group)

    def generated(self, request: str, count: int) -> tuple[int, ...]:
        """The next ``count`` tokens of a request; below 0 where no end tells them, which are equal to no others."""
        if count and request not in self._outputs:
            while not self._ends.get(request) and self._more():
                pass
            ends = self._ends.get(request)
            self._outputs[request] = deque(self.tokens.output(ends[0]) if ends else ())
        return tuple(self._next(self._outputs[request]) for _ in range(count))

    def _next(self, left: deque[int]) -> int:
        self._untold -= not left
        return left.popleft() if left else self._untold

    def _more(self) -> bool:
        """Read one group more."""
        group = next(self._source, None)
        if group is None:
            return False
        self._ahead.append(group)
        for event in group.events:
            if isinstance(event, EndGeneration):
                self._ends.setdefault(event.request, deque()).append(event)
        return True

    def _pass(self, group: Group) -> None:
        """What has ended here is behind us."""
        for event in group.events:
            if isinstance(event, EndGeneration):
                ends = self._ends[event.request]
                ends.popleft()
                if not ends:
                    del self._ends[event.request]
                self._outputs.pop(event.request, None)

    def _read(self) -> Iterator[Group]:
        events: list[Event] = []
        for event in self._reader:
            try:
                self._learn(event)
            except Malformed as error:
                raise self._reader.invalid(str(error)) from None
            if isinstance(event, Took):
                yield Group(self._reader.line, event, tuple(events))
                events = []
            else:
                events.append(event)
        if events:
            raise self._reader.invalid(f"{len(events)} events come behind the last message")

    def _learn(self, event: Event) -> None:
        match event:
            case ArriveGeneration(prompt=content) | ArrivePreparation(known=content):
                self.tokens.learn(content)
            case ArriveDecision(instruction=instruction, rows=rows):
                for content in (instruction, *rows):
                    self.tokens.learn(content)
            case EndGeneration(whole=whole) if whole is not None:
                self.tokens.learn(whole)
            case Took(given=given) if given is not None:
                for content in given.contents():
                    self.tokens.learn(content)
