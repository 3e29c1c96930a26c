"""``bailian``: JSONL of Qwen-Bailian (Wang et al., ATC 2025; github.com/alibaba-edu/qwen-bailian-usagetraces-anon).

One object a line, in order of time: ``chat_id``, ``parent_chat_id`` (-1: none), ``timestamp`` seconds,
``input_length`` and ``output_length`` tokens, ``type``, ``turn``, ``hash_ids`` one id for each block of 16 tokens of
the prompt. Ids are global. A turn follows its parent; when the parent ended is not known, so a turn comes at its own
time and has no think time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from .content import Named
from .mooncake import checked_ids
from .names import Recent
from .source import Source, objects
from .turn import Opened, Settings, Turn
from .values import output_tokens, prompt_tokens, seconds, text

NAME = "bailian"
BLOCK = 16
FIELDS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids")
_NONE = "-1"


def open_bailian(path: Path, settings: Settings, stack: ExitStack) -> Opened:
    """Open the file; it is closed with ``stack``."""
    source = stack.enter_context(Source(path, NAME))
    size = settings.block_size or BLOCK
    return Opened(size, _turns(source, size), lambda: source.position, source.size)


def _turns(source: Source, size: int) -> Iterator[Turn]:
    named = Named(size)
    roots: Recent[str] = Recent()
    for row in objects(source, FIELDS):
        tokens = row.get("input_length", prompt_tokens)
        chat, parent = row.get("chat_id", text), row.get("parent_chat_id", text)
        follows = parent != _NONE
        root = roots.get(parent, parent) if follows else chat
        roots.put(chat, root)
        yield Turn(
            at=row.get("timestamp", seconds),
            prompt=named.content(tokens, checked_ids(row, tokens, size)),
            output=row.get("output_length", output_tokens),
            identity=NAME,
            invalid=row.invalid,
            conversation=root,
            key=chat,
            after=parent if follows else "",
        )
