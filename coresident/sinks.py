"""From sampled tokens to pieces, where the device's steps run: plain text, or the channels of a model's family.

A sink says where its sequence stops, because a stop string, the end of a turn and malformed output must end it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import attrs

from .actors.errors import InvalidRequest
from .actors.events import GenerationEnded
from .results import Piece
from .runtime.backends.contract import Sampled
from .runtime.models.channel_events import ChannelClosed, ChannelEvent, ChannelOpened, MalformedChannels
from .runtime.models.channel_markers import Markers
from .runtime.models.channel_text import ChannelText
from .runtime.models.channels import ChannelDecoder
from .runtime.models.detokenize import Detokenizer
from .runtime.models.stops import StopScanner
from .runtime.models.tokenizer import AnyTokenizer

Show: TypeAlias = Callable[[Piece], None]


class Sink(Protocol):
    """Takes one request's tokens. ``open_call``: the channel of a tool call that has not ended."""

    @property
    def open_call(self) -> int | None: ...

    @property
    def thought_cut(self) -> bool: ...

    def take(self, sampled: Sampled, show: Show) -> str | None:
        """Show what is certain now; the reason to stop here, or ``None``. Raises when no text can be made of it."""
        ...

    def rest(self, end: GenerationEnded, show: Show) -> None:
        """After the last step: show what was held back. Raises as ``take`` where a completed output is only half."""
        ...


def make_sink(
    tokenizer: AnyTokenizer, stop: Sequence[str], ends: frozenset[int], channels: str | None, open_thought: bool
) -> Sink:
    """The sink of one request. Without ``ends`` no token stops it.

    Raises:
        InvalidRequest: a channel family that the model doesn't have, or an open thought without channels.
    """
    stops = StopScanner(stop)
    if channels is not None:
        decoder = ChannelDecoder(Markers.of(channels, tokenizer), starts_in="thought" if open_thought else "turn")
        return ChannelSink(decoder, ChannelText(tokenizer), stops, ends)
    if open_thought:
        raise InvalidRequest(
            "open_thought is True without channels: name the family of markers that the model was trained with",
            field="open_thought",
            value=open_thought,
        )
    return TextSink(Detokenizer(tokenizer), stops, ends)


@attrs.define(eq=False)
class TextSink:
    """All of the output is the answer: one piece a token."""

    detokenizer: Detokenizer
    stops: StopScanner
    ends: frozenset[int]

    @property
    def open_call(self) -> int | None:
        return None

    @property
    def thought_cut(self) -> bool:
        return False

    def take(self, sampled: Sampled, show: Show) -> str | None:
        stop = "stop_token" if sampled.token in self.ends else None
        text, matched = self.stops.push("" if stop else self.detokenizer.push(sampled.token))
        if stop:
            text += self._rest()
        elif matched:
            stop = "stop_string"
        show(Piece(text, sampled.token, sampled.logprob, sampled.top))
        return stop

    def rest(self, end: GenerationEnded, show: Show) -> None:
        stopped = end.reason in ("stop_token", "stop_string")
        if not stopped and (text := self._rest()):
            show(Piece(text))

    def _rest(self) -> str:
        text, matched = self.stops.push(self.detokenizer.flush())
        return text if matched else text + self.stops.flush()


@attrs.define(eq=False)
class ChannelSink:
    """Thought, answer and tool calls apart. Stop strings are looked for in the answer only.

    A token comes with the last piece that became certain with it; one that made none (a marker, part of a character)
    with an empty piece of the latest channel.
    """

    decoder: ChannelDecoder
    text: ChannelText
    stops: StopScanner
    ends: frozenset[int]
    open_call: int | None = attrs.field(init=False, default=None)
    thought_cut: bool = attrs.field(init=False, default=False)
    _opened: int = attrs.field(init=False, default=0)
    _latest: Piece = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._latest = Piece("", kind="thought" if self.decoder.starts_in == "thought" else "answer")

    def take(self, sampled: Sampled, show: Show) -> str | None:
        events, malformed = self._decode(sampled.token)
        pieces, stopped = self._pieces(events)
        *before, last = pieces or [self._latest]
        for piece in before:
            show(piece)
        show(attrs.evolve(last, token=sampled.token, logprob=sampled.logprob, top=sampled.top))
        if stopped:
            return "stop_string"
        if malformed is not None:
            raise malformed
        return "stop_token" if sampled.token in self.ends or self.decoder.state == "ended" else None

    def rest(self, end: GenerationEnded, show: Show) -> None:
        if end.reason in ("stop_token", "stop_string"):
            return
        malformed = None
        try:
            events = self.decoder.finish(allow_open_thought=True)
        except MalformedChannels as error:
            events, malformed = error.events, error
        for piece in self._pieces(events)[0]:
            show(piece)
        # An output that was broken off may end anywhere: that is no fault of the model's.
        if malformed is not None and end.outcome == "completed":
            raise malformed

    def _decode(self, token: int) -> tuple[list[ChannelEvent], MalformedChannels | None]:
        """What a token says, and what is wrong after it."""
        events: list[ChannelEvent] = []
        ends = token in self.ends
        try:
            # A stop token that only the model's file declares is no marker of the family.
            if not ends or (token,) in self.decoder.markers.spellings:
                events += self.decoder.push(token)
            if ends:
                events += self.decoder.finish()
        except MalformedChannels as error:
            return [*events, *error.events], error
        return events, None

    def _pieces(self, events: Iterable[ChannelEvent]) -> tuple[list[Piece], bool]:
        """The text of events, and whether a stop string ended it."""
        pieces: list[Piece] = []
        for event in self.text.push(events):
            text, stopped = "", False
            if isinstance(event, ChannelOpened):
                self._open(event)
            elif isinstance(event, ChannelClosed):
                text = self._close(event)
            else:
                text, stopped = self.stops.push(event.text) if event.kind == "answer" else (event.text, False)
            if text:
                pieces.append(attrs.evolve(self._latest, text=text))
            if stopped:
                return pieces, True
        return pieces, False

    def _open(self, event: ChannelOpened) -> None:
        self._latest = Piece("", kind=event.kind, channel=self._opened, recipient=event.recipient)
        self.open_call = self._opened if event.kind == "tool_call" else None
        self._opened += 1

    def _close(self, event: ChannelClosed) -> str:
        self.open_call = None
        self.thought_cut |= event.cut
        return self.stops.flush() if event.kind == "answer" else ""
