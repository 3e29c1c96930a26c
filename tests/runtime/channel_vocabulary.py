"""A small tokenizer that has any special tokens asked for, and what a channel decoder makes of a text."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from coresident.runtime.models.channel_events import ChannelEvent, ChannelTokens, MalformedChannels
from coresident.runtime.models.channel_families import FAMILIES
from coresident.runtime.models.channel_markers import Markers
from coresident.runtime.models.channels import ChannelDecoder
from coresident.runtime.models.tokenizer import Tokenizer
from small_vocabulary import write_folder

OTHER_SPECIALS = ('<|"|>', "<|im_end|>")


@functools.cache
def tokenizer_with(*texts: str) -> Tokenizer:
    """The small byte-level vocabulary, each of ``texts`` one special token of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_folder(Path(folder)) / "tokenizer.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        kept = [token for token in content["added_tokens"] if token["content"] not in texts]
        first = len(content["model"]["vocab"]) + len(content["added_tokens"])
        form = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        added = [{"id": first + n, "content": text, **form} for n, text in enumerate(texts)]
        content["added_tokens"] = [token for token in kept if token["content"] != "<think>"] + added
        path.write_text(json.dumps(content), encoding="utf-8")
        return Tokenizer.from_json(path)


@functools.cache
def vocabulary(family: str) -> Tokenizer:
    """A tokenizer for which every marker of ``family`` is one special token."""
    return tokenizer_with(*[marker.text for marker in FAMILIES[family].markers], *OTHER_SPECIALS)


@functools.cache
def markers(family: str) -> Markers:
    return Markers.of(family, vocabulary(family))


def ids(family: str, text: str) -> tuple[int, ...]:
    return vocabulary(family).encode(text)


def quoted(family: str, text: str) -> tuple[int, ...]:
    """The same text in ordinary tokens."""
    return vocabulary(family).encode(text, special=False)


def merged(events: Iterable[ChannelEvent]) -> list[ChannelEvent]:
    """Events with neighbouring runs of tokens put together."""
    result: list[ChannelEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, ChannelTokens) and isinstance(last, ChannelTokens):
            result[-1] = ChannelTokens(event.kind, last.tokens + event.tokens)
        else:
            result.append(event)
    return result


def tokens_of(kind: str, events: Iterable[ChannelEvent]) -> list[int]:
    return [
        token for event in events if isinstance(event, ChannelTokens) and event.kind == kind for token in event.tokens
    ]


def run(
    decoder: ChannelDecoder, pieces: Iterable[Sequence[int]], *, allow_open_thought: bool = False
) -> tuple[list[ChannelEvent], MalformedChannels | None]:
    """All events, those before a failure included, and the failure."""
    events: list[ChannelEvent] = []
    try:
        for piece in pieces:
            events += decoder.push_many(piece)
        events += decoder.finish(allow_open_thought=allow_open_thought)
    except MalformedChannels as error:
        return merged([*events, *error.events]), error
    return merged(events), None
