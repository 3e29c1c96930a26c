"""``weka``: recorded sessions of coding agents (github.com/callanjfox/kv-cache-tester, docs/trace_replay_tester.md).

A session is one JSON object in a file; a folder of such files is a set of sessions, taken in the order of their names,
each ``spacing`` seconds after the one before. Fields: ``id``, ``block_size``, ``hash_id_scope`` (``local``: ids mean
something within the session; ``global``), ``tool_tokens`` and ``system_tokens`` (the standing head of a prompt), and
``requests``:

* ``t`` seconds since the session's (or sub-agent's) start, ``model``, ``in`` and ``out`` tokens, ``hash_ids`` one id
  for each whole block, the last, shorter one with or without; ``stop``; ``api_time`` seconds that it took and, of a
  streamed one, ``ttft``, both only where they were seen; ``think_time`` is not read, since ``t`` and ``api_time`` say
  the same more exactly.
* ``type`` ``subagent``: a session within the session, with ``requests`` of its own. Its ``t`` is when its result came
  back, ``duration_ms`` later than it began: in the published files that is within a second of the end of the request
  that started it, and right before the request that goes on with the result.

A turn follows what ended last before it came: the turn before, or the last turn of a sub-agent. Where that end was
seen it comes a think time later, and replays are closed loop from a session's first request on; ``open_loop`` keeps
recorded times instead. Each model is an identity of its own. The memory that is needed is that of the sessions which
overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path

import attrs

from ...actors.errors import TraceInvalid
from .source import Source, listed, parse
from .turn import Opened, Settings, Turn
from .values import Wrong
from .weka_session import Session, read_session

NAME = "weka"


@attrs.define
class _Files:
    """Session files, and the bytes of those that were read."""

    paths: tuple[Path, ...]
    done: int = 0

    def sessions(self, size: int | None) -> Iterator[Session]:
        """Their sessions; ``size`` is what blocks must have, if it is given, else that of the first for all."""
        seen: dict[str, Path] = {}
        for path in self.paths:
            session = _load(path, size)
            if session.name in seen:
                raise TraceInvalid(
                    f"{path}, session: id is {session.name!r}, as in {seen[session.name]}: each has its own",
                    file=str(path),
                )
            seen[session.name] = path
            self.done += path.stat().st_size
            size = session.size
            yield session


def open_weka(path: Path, settings: Settings, stack: ExitStack) -> Opened:
    """Read the first session: it says the size of blocks for all."""
    found = tuple(sorted((*path.glob("*.json"), *path.glob("*.json.gz")))) if path.is_dir() else (path,)
    if not found:
        raise TraceInvalid(f"{path}: the folder has no .json files", file=str(path))
    files = _Files(found)
    sessions = files.sessions(settings.block_size)
    first = next(sessions)
    turns = _in_order(chain((first,), sessions), round(settings.spacing_s * 10**9))
    return Opened(first.size, turns, lambda: files.done, sum(each.stat().st_size for each in found))


def _load(path: Path, size: int | None) -> Session:
    with Source(path, NAME) as source:
        try:
            data = parse("".join(source.lines()))
        except Wrong as error:
            raise source.unlike(str(error)) from None
        missing = [name for name in ("id", "block_size", "requests") if name not in data]
        if missing:
            raise source.unlike(f"{', '.join(missing)} missing; there are {listed(data)}")
        return read_session(data, str(path), size)


def _in_order(sessions: Iterator[Session], spacing: int) -> Iterator[Turn]:
    """All turns in order of time, those of earlier sessions first where they come together."""
    waiting: list[tuple[int, int, Turn]] = []
    count = 0
    for number, session in enumerate(sessions):
        start = number * spacing
        while waiting and waiting[0][0] < start:
            yield heappop(waiting)[2]
        for turn in session.turns:
            count += 1
            heappush(waiting, (start + turn.at, count, _later(turn, start)))
    while waiting:
        yield heappop(waiting)[2]


def _later(turn: Turn, by: int) -> Turn:
    end = turn.end
    if end is not None:
        end = attrs.evolve(end, at=end.at + by, first=None if end.first is None else end.first + by)
    return attrs.evolve(turn, at=turn.at + by, end=end)
