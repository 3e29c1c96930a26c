"""``mooncake``: JSONL of the Mooncake traces (Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake, FAST25-release).

One object a line, in order of time, ties in file order: ``timestamp`` milliseconds, ``input_length`` and
``output_length`` tokens, ``hash_ids`` one id for each block of 512 tokens of the prompt, the last one maybe shorter.
Ids are global: equal ids are equal content behind an equal head. The source says nothing of conversations and of ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from .content import Named, mismatch
from .source import Row, Source, objects
from .turn import Opened, Settings, Turn
from .values import block_ids, milliseconds, output_tokens, prompt_tokens

NAME = "mooncake"
BLOCK = 512
FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")


def open_mooncake(path: Path, settings: Settings, stack: ExitStack) -> Opened:
    """Open the file; it is closed with ``stack``."""
    source = stack.enter_context(Source(path, NAME))
    size = settings.block_size or BLOCK
    return Opened(size, _turns(source, size), lambda: source.position, source.size)


def _turns(source: Source, size: int) -> Iterator[Turn]:
    named = Named(size)
    for row in objects(source, FIELDS):
        tokens = row.get("input_length", prompt_tokens)
        yield Turn(
            at=row.get("timestamp", milliseconds),
            prompt=named.content(tokens, checked_ids(row, tokens, size)),
            output=row.get("output_length", output_tokens),
            identity=NAME,
            invalid=row.invalid,
        )


def checked_ids(row: Row, tokens: int, size: int) -> tuple[int, ...]:
    """``hash_ids`` of a prompt, as many as its ``input_length`` asks for."""
    ids: tuple[int, ...] = row.get("hash_ids", block_ids)
    wrong = mismatch(tokens, len(ids), size)
    if wrong is not None:
        raise row.invalid(f"input_length and hash_ids do not agree: {wrong} (--block-size)")
    return ids
