"""The text of channel events: one detokenizer for each kind, so half characters never cross channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import attrs

from .channel_events import ChannelClosed, ChannelEvent, ChannelOpened, ChannelTokens
from .channel_families import Kind
from .detokenize import Detokenizer
from .tokenizer import AnyTokenizer


@attrs.frozen
class ChannelPiece:
    """Text of the open channel, never empty."""

    kind: Kind
    text: str


TextEvent: TypeAlias = ChannelOpened | ChannelPiece | ChannelClosed


@attrs.define(eq=False)
class ChannelText:
    """Turns a decoder's events into text. Special tokens have text in tool calls only, where quotes may be such."""

    tokenizer: AnyTokenizer
    _streams: dict[Kind, Detokenizer] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._streams = {
            "thought": Detokenizer(self.tokenizer),
            "answer": Detokenizer(self.tokenizer),
            "tool_call": Detokenizer(self.tokenizer, special=True),
        }

    def push(self, events: Iterable[ChannelEvent]) -> tuple[TextEvent, ...]:
        """The events with whole characters in place of tokens; an unfinished one is U+FFFD at its channel's end."""
        shown: list[TextEvent] = []
        for event in events:
            text = self._text(event)
            if text:
                shown.append(ChannelPiece(event.kind, text))
            if not isinstance(event, ChannelTokens):
                shown.append(event)
        return tuple(shown)

    def _text(self, event: ChannelEvent) -> str:
        stream = self._streams[event.kind]
        if isinstance(event, ChannelTokens):
            return "".join(map(stream.push, event.tokens))
        return stream.flush() if isinstance(event, ChannelClosed) else ""
