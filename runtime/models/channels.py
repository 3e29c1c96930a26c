"""Token ids to thought, answer and tool calls, one token at a time.

Use: ``decoder = ChannelDecoder(Markers.of("gemma4", tokenizer))``, one for every output; push every sampled token (also
the one that ended it), then ``finish(allow_open_thought=reason == "length")``; ``ChannelText`` makes the events' text.

Rule 1: the family's table is all there is: a marker that it has no place for in the current state is malformed.
Rule 2: every ordinary token belongs to exactly one channel or header, told by the state when it becomes certain; so
what stands between an opener and its closer never is an answer, and a failure changes nothing that was said before.
Rule 3: tokens are taken one by one whatever the call, so the events do not depend on how the stream was cut; only runs
of tokens come in fewer pieces.
Rule 4: an error is final. The decoder keeps its reason and raises it again.
Rule 5: it holds a beginning of a marker, a header within its limit, and counters: nothing that grows with the output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import attrs

from ...actors.errors import InvalidRequest
from .channel_events import (
    ChannelClosed,
    ChannelEvent,
    ChannelLimits,
    ChannelOpened,
    ChannelTokens,
    MalformedChannels,
)
from .channel_families import HEADER_STATES, KINDS, Kind, problem_of
from .channel_headers import Heading, read_heading
from .channel_markers import MarkerMatcher, Markers

SHOWN_HEADER = 40


@attrs.frozen
class ChannelStatistics:
    """Tokens so far and what they were. ``held``: they may begin a marker; ``channels``: how many have opened."""

    tokens: int
    thought: int
    answer: int
    tool_call: int
    held: int
    channels: int
    state: str


@attrs.define(eq=False)
class ChannelDecoder:
    """Splits one output. ``starts_in``: ``turn``, or the channel that the prompt has opened (a key of ``starts``).

    Raises:
        InvalidRequest: the family cannot start there.
    """

    markers: Markers
    limits: ChannelLimits = attrs.field(factory=ChannelLimits)
    starts_in: str = attrs.field(default="turn", kw_only=True)
    state: str = attrs.field(init=False)
    _matcher: MarkerMatcher = attrs.field(init=False)
    _position: int = attrs.field(init=False, default=0)
    _sections: dict[str, bytearray] = attrs.field(init=False, factory=dict)
    _header_tokens: int = attrs.field(init=False, default=0)
    _spent: dict[Kind, int] = attrs.field(init=False)
    _channels: int = attrs.field(init=False, default=0)
    _open: Kind | None = attrs.field(init=False, default=None)
    _events: list[ChannelEvent] = attrs.field(init=False, factory=list)
    _run: list[int] = attrs.field(init=False, factory=list)
    _failure: dict[str, Any] | None = attrs.field(init=False, default=None)
    _finished: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        family = self.markers.family
        if self.starts_in not in family.starts:
            raise InvalidRequest(
                f"starts_in is {self.starts_in!r}; channels {family.name} can start in {', '.join(family.starts)}",
                field="starts_in",
                value=self.starts_in,
            )
        self.state = family.starts[self.starts_in]
        self._matcher = MarkerMatcher(self.markers)
        self._spent = {"thought": 0, "answer": 0, "tool_call": 0}
        # The prompt has begun the first header.
        self._sections["role"] = bytearray((family.role or "").encode())

    def push(self, token: int) -> tuple[ChannelEvent, ...]:
        """Take the next token; what is certain now. Raises as ``push_many``."""
        return self.push_many((token,))

    def push_many(self, tokens: Iterable[int]) -> tuple[ChannelEvent, ...]:
        """Take the next tokens; what is certain after them.

        Raises:
            MalformedChannels: the output breaks the family's rules; its ``events`` are those of this call up to there.
            InvalidRequest: a negative token id (then none of the tokens is taken), or the decoder has finished.
        """
        self._begin_call()
        tokens = tuple(tokens)
        if tokens and min(tokens) < 0:
            raise InvalidRequest(f"token id is {min(tokens)}; ids begin at 0", field="token", value=min(tokens))
        for token in tokens:
            ordinary, marker = self._matcher.push(token)
            self._take(ordinary)
            if marker:
                self._signal(marker)
        return self._end_call()

    def finish(self, *, allow_open_thought: bool = False) -> tuple[ChannelEvent, ...]:
        """The output has ended. ``allow_open_thought``: at its length; an open thought is cut, an open header dropped.

        A tool call that is open is malformed in any case: half a call must not be run. Raises as ``push_many``.
        """
        self._begin_call()
        self._take(self._matcher.flush())
        cut = allow_open_thought and (self.state == "thought" or self.state in HEADER_STATES)
        if not cut and (self.state in ("thought", "tool_call") or self.state in HEADER_STATES):
            self._fail("unterminated", "the end of the output")
        self._close(cut=cut)
        self._finished = True
        return self._end_call()

    @property
    def open_channel(self) -> str | None:
        """``thought``, ``answer``, ``tool_call``, ``header``, or ``None`` where nothing is open."""
        if self.state in HEADER_STATES:
            return "header"
        return self._open if self.state == "outside" else KINDS.get(self.state)

    def statistics(self) -> ChannelStatistics:
        """Counters so far, and the state."""
        held = len(self._matcher.held)
        return ChannelStatistics(
            tokens=self._position + held, held=held, channels=self._channels, state=self.state, **self._spent
        )

    # --- one call -----------------------------------------------------------------------------------------------

    def _begin_call(self) -> None:
        if self._failure is not None:
            raise MalformedChannels(**self._failure)
        if self._finished:
            raise InvalidRequest("the channel decoder has finished: make one for every output", field="token")
        self._events = []

    def _end_call(self) -> tuple[ChannelEvent, ...]:
        self._flush_run()
        events, self._events = tuple(self._events), []
        return events

    def _fail(self, problem: str, found: str, limit: int | None = None) -> NoReturn:
        self._failure = {
            "problem": problem,
            "family": self.markers.family.name,
            "position": self._position,
            "found": found,
            "open_channel": self.open_channel,
            "limit": limit,
        }
        raise MalformedChannels(**self._failure, events=self._end_call())

    # --- ordinary tokens ----------------------------------------------------------------------------------------

    def _take(self, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            kind = KINDS.get(self.state)
            if kind is not None:
                self._content(kind, token)
            elif self.state in HEADER_STATES:
                self._header(token)
            else:
                self._go("text", f"token {token}")
                self._header(token)
            self._position += 1

    def _content(self, kind: Kind, token: int) -> None:
        limit = {"thought": self.limits.thought_tokens, "tool_call": self.limits.tool_call_tokens}.get(kind)
        if limit is not None and self._spent[kind] >= limit:
            self._fail("too_long", f"token {self._spent[kind] + 1} of {kind}", limit)
        self._show(kind)
        self._run.append(token)
        self._spent[kind] += 1

    def _header(self, token: int) -> None:
        self._header_tokens += 1
        if self._header_tokens > self.limits.header_tokens:
            self._fail("too_long", f"token {self._header_tokens} of a header", self.limits.header_tokens)
        text, line_end, rest = self.markers.token_bytes(token), b"", b""
        if self.markers.family.role is None:
            text, line_end, rest = text.partition(b"\n")
        self._sections[self.state].extend(text)
        if rest.strip():
            self._fail("malformed_header", f"token {token}, which runs on after the header's line")
        if line_end:
            self._read_header()

    # --- markers ------------------------------------------------------------------------------------------------

    def _signal(self, ids: tuple[int, ...]) -> None:
        marker = self.markers.spellings[ids]
        if marker.signal == "body" and self.state in ("label", "format"):
            self._read_header()
        else:
            self._go(marker.signal, marker.text)
        self._position += len(ids)

    def _read_header(self) -> None:
        heading = read_heading(self.markers.family, self._sections)
        if not isinstance(heading, Heading):
            text = b" ".join(self._sections.values()).decode("utf-8", errors="replace")
            self._fail(heading, f"the header {text[:SHOWN_HEADER]!r}")
        self._go(f"says_{heading.kind}", "a header", heading.recipient)
        self._sections, self._header_tokens = {}, 0

    def _go(self, signal: str, found: str, recipient: str | None = None) -> None:
        """Follow the table; close what was open, and open what the next state is."""
        after = self.markers.family.table.get((self.state, signal))
        if after is None:
            self._fail(problem_of(self.state, signal), found)
        self._close()
        if signal == "start":
            self._sections = {}
        if after in HEADER_STATES:
            self._sections.setdefault(after, bytearray())
        elif after in KINDS and after != "outside":
            self._show(KINDS[after], recipient)
        self.state = after

    def _show(self, kind: Kind, recipient: str | None = None) -> None:
        if self._open is None:
            if self._channels == self.limits.channels:
                self._fail("too_long", f"channel {self._channels + 1}", self.limits.channels)
            self._channels += 1
            self._open = kind
            self._events.append(ChannelOpened(kind, recipient))

    def _close(self, *, cut: bool = False) -> None:
        if self.state in KINDS and self.state != "outside":
            # A channel that the prompt opened shows even when it is empty.
            self._show(KINDS[self.state])
        self._flush_run()
        if self._open is not None:
            self._events.append(ChannelClosed(self._open, cut))
            self._open = None

    def _flush_run(self) -> None:
        if self._run and self._open is not None:
            self._events.append(ChannelTokens(self._open, tuple(self._run)))
            self._run = []
