"""``azure``: CSV of the Azure LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset).

Columns ``TIMESTAMP``, ``ContextTokens``, ``GeneratedTokens``; in order of time. Times of 2023 look like
``2023-11-16 18:15:46.6805900``, those of 2024 like ``2024-05-10 00:00:00.009930+00:00``. (Patel et al., ISCA 2024;
Stojkovic et al., HPCA 2025.) The source says nothing of content, conversations and ends: every prompt is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from ..header import BLOCK
from .content import Unnamed
from .source import Source, table
from .turn import Opened, Settings, Turn
from .values import output_tokens, prompt_tokens, stamp

NAME = "azure"
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def open_azure(path: Path, settings: Settings, stack: ExitStack) -> Opened:
    """Open the file; it is closed with ``stack``."""
    source = stack.enter_context(Source(path, NAME))
    size = settings.block_size or BLOCK
    unnamed = Unnamed(size, settings.shared_head)
    return Opened(size, _turns(source, unnamed), lambda: source.position, source.size)


def _turns(source: Source, unnamed: Unnamed) -> Iterator[Turn]:
    for row in table(source, COLUMNS):
        yield Turn(
            at=row.get("TIMESTAMP", stamp),
            prompt=unnamed.content(row.get("ContextTokens", prompt_tokens)),
            output=row.get("GeneratedTokens", output_tokens),
            identity=NAME,
            invalid=row.invalid,
        )
