"""``vllm``: JSONL of what became of requests on a vLLM server, as LLMServingSim publishes it (bench/examples).

One object a line, in order of time: ``request_id``, ``input_toks``, ``output_toks``, and ``queued_ts``,
``scheduled_ts``, ``first_token_ts``, ``last_token_ts`` seconds of one monotonic clock (vLLM's request metrics).
A request arrives when the server queued it: its ``arrival_time`` is of another clock and is not read.

The import has the recorded outcome beside the workload: the end of each request, its time to first token, and equal
gaps between the others, which are known as a mean only.
The source says nothing of content: every prompt is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from ..header import BLOCK
from .content import Unnamed
from .source import Row, Source, objects
from .turn import End, Opened, Settings, Turn
from .values import output_tokens, prompt_tokens, seconds

NAME = "vllm"
FIELDS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
_STAMPS = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
_OPTIONAL = "scheduled_ts"


def open_vllm(path: Path, settings: Settings, stack: ExitStack) -> Opened:
    """Open the file; it is closed with ``stack``."""
    source = stack.enter_context(Source(path, NAME))
    size = settings.block_size or BLOCK
    unnamed = Unnamed(size, settings.shared_head)
    return Opened(size, _turns(source, unnamed), lambda: source.position, source.size)


def _turns(source: Source, unnamed: Unnamed) -> Iterator[Turn]:
    for row in objects(source, FIELDS):
        output = row.get("output_toks", output_tokens)
        yield Turn(
            at=row.get("queued_ts", seconds),
            prompt=unnamed.content(row.get("input_toks", prompt_tokens)),
            output=output,
            identity=NAME,
            invalid=row.invalid,
            end=_end(row) if output else None,
        )


def _end(row: Row) -> End:
    stamps = [(name, row.get(name, seconds)) for name in _STAMPS if name != _OPTIONAL or name in row.fields]
    for (before, early), (after, late) in pairwise(stamps):
        if late < early:
            raise row.invalid(f"{after} is {late / 1e9} s, before {before} at {early / 1e9} s")
    times = dict(stamps)
    return End(times["last_token_ts"], times["first_token_ts"])
