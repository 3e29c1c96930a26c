"""From turns to events in order of time: arrivals as they come, ends kept back until their time.

What is kept grows with the requests that were open at once, not with the trace. Where two come at the same time, an
end goes first: what follows it may come at once. Of an end that the source tells, what had been reused of the prompt is
not known, and told as nothing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import repeat

import attrs

from ..events_schedule import EndGeneration, Tokens
from ..events_workload import ArriveGeneration
from ..format import Event
from ..writer import TraceWriter
from .names import Recent
from .roles import becomes_decision, decision_of, preparation_of
from .summary import Counter
from .turn import End, Settings, Turn
from .values import MOST

_FAILED = "FailedAtSource"
MOST_BLOCKS = 2**20


@attrs.frozen
class _Named:
    """A request that others may follow, and when it ended, if that is told."""

    request: str
    end: int | None


@attrs.frozen
class _Ending:
    """The events that are due at an end."""

    turn: Turn
    arrival: ArriveGeneration
    end: End


class Emitter:
    """Writes turns, taken in order of time, as events."""

    def __init__(self, writer: TraceWriter, settings: Settings, size: int, counter: Counter) -> None:
        self._writer = writer
        self._settings = settings
        self._size = size
        self._counter = counter
        self._names: Recent[_Named | None] = Recent()
        self._endings: list[tuple[int, int, _Ending]] = []
        self._origin: int | None = None
        self._latest = 0
        self._turns = 0
        self._requests = 0

    def add(self, turn: Turn) -> None:
        """Take a turn. Raises ``TraceInvalid`` when it comes before the one ahead of it."""
        if self._origin is None:
            self._origin = turn.at
        at = turn.at - self._origin
        if at < self._latest:
            raise turn.invalid(
                f"its time is {(self._latest - at) / 1e9} s before that of the request ahead of it: "
                "sort the file by time, keeping the order of equal times"
            )
        self._check_size(turn, at)
        self._latest = at
        self._until(at)
        self._turns += 1
        self._counter.turn(turn)
        if becomes_decision(self._settings, self._turns) and turn.output:
            arrival = self._arrival(turn, at, self._next())
            self._write(decision_of(arrival, arrival.request, self._settings, self._size))
            self._remember(turn, arrival.request, None)
        else:
            self._generation(turn, at)

    def finish(self) -> None:
        """Write what is still to come."""
        while self._endings:
            self._end(heappop(self._endings)[2])

    def _check_size(self, turn: Turn, at: int) -> None:
        """Refuse what the format has no room for."""
        if len(turn.prompt.blocks) > MOST_BLOCKS:
            raise turn.invalid(
                f"its prompt has {len(turn.prompt.blocks)} blocks of {self._size} tokens; up to {MOST_BLOCKS} are "
                "written: take larger blocks"
            )
        if max(at, 0 if turn.end is None else turn.end.at - (self._origin or 0)) > MOST:
            raise turn.invalid("it comes or ends more than 292 years after the first request")

    # --- turns --------------------------------------------------------------------------------------------------

    def _generation(self, turn: Turn, at: int) -> None:
        before = self._next() if self._settings.decide_before_turns else ""
        arrival = self._arrival(turn, at, self._next())
        if before:
            self._write(decision_of(arrival, before, self._settings, self._size))
        self._write(arrival)
        if not turn.output:
            self._write(_end_of(arrival, at, "failed", "", 0, _FAILED))
        elif turn.end is not None:
            end = turn.end
            heappush(self._endings, (end.at - (self._origin or 0), self._requests, _Ending(turn, arrival, end)))
        self._remember(turn, arrival.request, turn.end)

    def _remember(self, turn: Turn, request: str, end: End | None) -> None:
        if turn.key:
            self._names.put(turn.key, _Named(request, None if end is None else end.at - (self._origin or 0)))

    def _arrival(self, turn: Turn, at: int, request: str) -> ArriveGeneration:
        before = self._names.get(turn.after, None) if turn.after else None
        self._counter.unfollowed += bool(turn.after) and before is None
        ended = None if before is None or self._settings.open_loop else before.end
        return ArriveGeneration(
            at=at,
            request=request,
            work_class="foreground",
            prompt=turn.prompt,
            max_tokens=max(1, turn.output),
            identity=turn.identity,
            conversation=turn.conversation,
            after=None if before is None else before.request,
            think_ns=at - ended if ended is not None and ended <= at else None,
            expected=turn.output or None,
        )

    def _next(self) -> str:
        self._requests += 1
        return f"r{self._requests}"

    # --- ends ---------------------------------------------------------------------------------------------------

    def _until(self, at: int) -> None:
        while self._endings and self._endings[0][0] <= at:
            self._end(heappop(self._endings)[2])

    def _end(self, ending: _Ending) -> None:
        turn, arrival, end = ending.turn, ending.arrival, ending.end
        at = end.at - (self._origin or 0)
        if end.first is not None:
            self._write(Tokens(at, arrival.request, _gaps(turn, end, end.first)))
        self._write(_end_of(arrival, at, "completed", end.reason, turn.output, None))
        if self._settings.prepare:
            preparation = preparation_of(turn, at, f"p{arrival.request}", arrival.request, self._settings)
            if preparation is not None:
                self._write(preparation)

    def _write(self, event: Event) -> None:
        self._counter.event(event)
        self._writer.add(event)


def _gaps(turn: Turn, end: End, first: int) -> tuple[int, ...]:
    """The time to the first token, and the others' mean in whole nanoseconds that add up to the end."""
    others = turn.output - 1
    if not others:
        return (first - turn.at,)
    gap, more = divmod(end.at - first, others)
    return (first - turn.at, *repeat(gap + 1, more), *repeat(gap, others - more))


def _end_of(
    arrival: ArriveGeneration, at: int, outcome: str, reason: str, tokens: int, error: str | None
) -> EndGeneration:
    prompt = arrival.prompt.tokens if error is None else 0
    return EndGeneration(
        at=at,
        request=arrival.request,
        outcome=outcome,
        reason=reason,
        prompt=arrival.prompt.tokens,
        reused=0,
        prefilled=prompt,
        tokens=tokens,
        error=error,
    )
