"""One session of the ``weka`` format: its nested requests as turns in order of time, each with what it follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ...actors.errors import TraceInvalid
from ..events_workload import Content
from .content import Named, mismatch
from .source import listed
from .turn import End, Turn
from .values import Value, Wrong, block_ids, milliseconds, output_tokens, prompt_tokens, seconds, text, whole

_SUBAGENT = "subagent"
_DEEPEST = 16
_size = whole(1, 65_536, "a block's size")
_head = whole(0, 2**24, "a number of tokens")


@attrs.frozen
class Session:
    """Its id, the size of its blocks, and its turns."""

    name: str
    size: int
    turns: tuple[Turn, ...]


@attrs.frozen
class _Place:
    """A request or session in its file, for fields and errors."""

    file: str
    name: str
    fields: Mapping[str, Any]

    def get(self, name: str, read: Value[Any], default: Any = ...) -> Any:
        if name not in self.fields:
            if default is not ...:
                return default
            raise self.invalid(f"{name} is missing; there are {listed(self.fields)}")
        try:
            return read(self.fields[name])
        except Wrong as error:
            raise self.invalid(f"{name} is {error}") from None

    def invalid(self, what: str) -> TraceInvalid:
        return TraceInvalid(f"{self.file}, {self.name}: {what}", file=self.file, row=self.name)


@attrs.frozen
class _Agent:
    """The session's main agent, or a sub-agent: ``start`` is its time zero in the session, in nanoseconds."""

    name: str
    path: str
    start: int
    standing: int
    depth: int = 0


def read_session(data: Mapping[str, Any], file: str, size: int | None) -> Session:
    """A session from its parsed file; ``size`` is what its blocks must have, if that is given.

    Raises ``TraceInvalid`` naming file, request, field and value.
    """
    place = _Place(file, "session", data)
    own = place.get("block_size", _size)
    if size is not None and own != size:
        raise place.invalid(f"block_size is {own}, but blocks of {size} tokens were asked for or come before")
    name = place.get("id", text)
    scope = place.get("hash_id_scope", text, "local")
    if scope not in ("local", "global"):
        raise place.invalid(f"hash_id_scope is {scope!r}: known are local, global")
    reader = _Reader(file, own, Named(own, "" if scope == "global" else f"weka {name}"))
    reader.read(place.fields["requests"], _Agent(name, "", 0, _standing(place)), "")
    # The order of the list is that of ends: a sub-agent stands where its result came back.
    return Session(name, own, tuple(sorted(reader.turns, key=lambda turn: turn.at)))


def _standing(place: _Place) -> int:
    return int(place.get("tool_tokens", _head, 0) + place.get("system_tokens", _head, 0))


class _Reader:
    """Collects the turns of a session."""

    def __init__(self, file: str, size: int, named: Named) -> None:
        self.turns: list[Turn] = []
        self._file = file
        self._size = size
        self._named = named

    def read(self, requests: Any, agent: _Agent, parent: str) -> Turn | None:
        """Take an agent's requests, the first of which follows ``parent``; the last one that it has itself."""
        if not isinstance(requests, list) or agent.depth > _DEEPEST:
            raise TraceInvalid(f"{self._file}, {agent.name}: requests are no list, or nest too deeply", file=self._file)
        latest: Turn | None = None
        position = 0
        results: list[Turn] = []
        for index, fields in enumerate(requests, 1):
            place = self._place(fields, f"request {agent.path}{index}")
            if fields.get("type") == _SUBAGENT:
                inner = self._subagent(place, agent, f"{agent.path}{index}.")
                result = self.read(fields.get("requests", []), inner, latest.key if latest else parent)
                results += [] if result is None else [result]
                continue
            turn = self._turn(place, agent, f"{agent.path}{index}")
            if latest is not None and turn.at < latest.at:
                raise place.invalid(f"t is {turn.at / 1e9} s, before the request ahead of it at {latest.at / 1e9} s")
            candidates = [*([] if latest is None else [latest]), *results]
            turn = attrs.evolve(turn, after=_ended_last(candidates, turn.at) or parent)
            if latest is not None:
                self.turns[position] = self._prepared(latest, turn)
            latest, position, results = turn, len(self.turns), []
            self.turns.append(turn)
        return latest

    def _place(self, fields: Any, name: str) -> _Place:
        if not isinstance(fields, dict):
            raise TraceInvalid(f"{self._file}, {name}: not a JSON object", file=self._file, row=name)
        return _Place(self._file, name, fields)

    def _subagent(self, place: _Place, agent: _Agent, path: str) -> _Agent:
        back = place.get("t", seconds)
        took = place.get("duration_ms", milliseconds, 0)
        if took > back:
            raise place.invalid(f"duration_ms is {took / 1e6}, but its result came back at t = {back / 1e9} s")
        name = f"{agent.name}/{place.get('agent_id', text, path)}"
        return _Agent(name, path, agent.start + back - took, _standing(place), agent.depth + 1)

    def _turn(self, place: _Place, agent: _Agent, number: str) -> Turn:
        tokens = place.get("in", prompt_tokens)
        ids = place.get("hash_ids", block_ids)
        wrong = mismatch(tokens, len(ids), self._size, short=True)
        if wrong is not None:
            raise place.invalid(f"in and hash_ids do not agree: {wrong}")
        at = agent.start + place.get("t", seconds)
        output = place.get("out", output_tokens)
        return Turn(
            at=at,
            prompt=self._named.content(tokens, ids, number),
            output=output,
            identity=place.get("model", text),
            invalid=place.invalid,
            conversation=agent.name,
            key=f"{agent.name} {number}",
            end=_end(place, at) if output else None,
            standing=agent.standing,
        )

    def _prepared(self, turn: Turn, following: Turn) -> Turn:
        """A turn that knows what the next one of its agent has in common with it."""
        shared = _shared(turn.prompt.blocks, following.prompt.blocks) if turn.identity == following.identity else 0
        tokens = min(shared * self._size, turn.prompt.tokens)
        known = Content(tokens, turn.prompt.blocks[:shared]) if shared else None
        return attrs.evolve(turn, known=known, standing=min(turn.standing, tokens))


def _ended_last(turns: Iterable[Turn], by: int) -> str:
    """The key of the turn whose end was seen last before a time; the latest one where none was."""
    turns = list(turns)
    ended = [(turn.end.at, turn.key) for turn in turns if turn.end is not None and turn.end.at <= by]
    return max(ended)[1] if ended else turns[0].key if turns else ""


def _end(place: _Place, at: int) -> End | None:
    took = place.get("api_time", seconds, None)
    if took is None:
        return None
    first = place.get("ttft", seconds, None)
    if first is not None and first > took:
        raise place.invalid(f"ttft is {first / 1e9} s, longer than api_time of {took / 1e9} s")
    stop = place.get("stop", text, "")
    return End(at + took, None if first is None else at + first, stop or "length")


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many blocks two sequences have in common at their heads."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
