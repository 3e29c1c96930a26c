"""``burstgpt``: CSV of BurstGPT (Wang et al., KDD 2025; github.com/HPMLL/BurstGPT).

Columns ``Timestamp`` seconds, ``Model``, ``Request tokens``, ``Response tokens``, ``Total tokens``, ``Log Type``; in
order of time. A row with no response tokens is a request that failed. Later releases have a ``Session ID``, empty in
rows of an API: rows of one session are turns of one conversation. Their ``Elapsed time``, in whole seconds, is not
read: ends are not known. The source says nothing of content: every prompt is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from ..header import BLOCK
from .content import Unnamed
from .names import Recent
from .source import Source, table
from .turn import Opened, Settings, Turn
from .values import output_tokens, prompt_tokens, seconds, text

NAME = "burstgpt"
COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens")
SESSION = "Session ID"


def open_burstgpt(path: Path, settings: Settings, stack: ExitStack) -> Opened:
    """Open the file; it is closed with ``stack``."""
    source = stack.enter_context(Source(path, NAME))
    size = settings.block_size or BLOCK
    unnamed = Unnamed(size, settings.shared_head)
    return Opened(size, _turns(source, unnamed), lambda: source.position, source.size)


def _turns(source: Source, unnamed: Unnamed) -> Iterator[Turn]:
    sessions: Recent[bool] = Recent()
    for row in table(source, COLUMNS):
        session = row.get(SESSION, text) if SESSION in row.fields else ""
        follows = bool(session) and sessions.get(session, False)
        sessions.put(session, True)
        yield Turn(
            at=row.get("Timestamp", seconds),
            prompt=unnamed.content(row.get("Request tokens", prompt_tokens)),
            output=row.get("Response tokens", output_tokens),
            identity=row.get("Model", text),
            invalid=row.invalid,
            conversation=session,
            key=session,
            after=session if follows else "",
        )
