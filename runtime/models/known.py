"""The known part of a prompt to come, as tokens that the later prompt will begin with.

Chat templates are programs: some rewrite past turns once a new message follows, some refuse messages that end where
ours end, and a tokenizer may join the last characters with what comes next. So the known messages are rendered without
a generation prompt and compared with full prompts that continue them in different ways. Only what all of them begin
with is known. Where that leaves part of the history out, the history is not prepared and the result says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from ...actors.errors import InvalidRequest
from .text import TextKit

Messages: TypeAlias = Sequence[Mapping[str, Any]]
_PROBES = ("a", "\n1. Ω")
_ASKS = ("user", "tool")


@attrs.frozen
class Known:
    """``tokens`` that later prompts begin with, the first ``standing`` of them instructions and tools.

    ``limited`` says why less is known than was given; empty when all of it is.
    """

    tokens: tuple[int, ...]
    standing: int
    identity: str
    limited: str = ""


def render_known(
    kit: TextKit,
    standing: Messages | str,
    history: Messages | str = (),
    tools: Sequence[Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Known:
    """Both parts as messages, or both as text.

    Raises ``InvalidRequest`` when one is text and the other is not, or when nothing is given.
    """
    if isinstance(standing, str) or isinstance(history, str):
        return _known_text(kit, standing, history)
    if not standing and not history:
        raise InvalidRequest("standing and history are both empty: give at least one message", field="standing")
    everything = _Head(kit, (*standing, *history), tools, options)
    first = _Head(kit, tuple(standing), tools, options) if standing else None
    if everything.whole:
        count = min(first.known, everything.known) if first is not None else 0
        return Known(everything.tokens, count, everything.identity)
    if first is None or not first.known:
        return Known((), 0, everything.identity, "the template rewrites history once a message follows it")
    reason = "the template rewrites history once a message follows it: only the standing part is prepared"
    if not history:
        reason = "the template does not end the standing part where the messages end"
    return Known(first.tokens[: first.known], first.known, first.identity, reason)


def _known_text(kit: TextKit, standing: object, history: object) -> Known:
    if not isinstance(standing, str) or (history and not isinstance(history, str)):
        raise InvalidRequest("standing and history must both be texts, or both be messages", field="history")
    text = standing + str(history or "")
    rendered = kit.render(text)
    # What follows may join with the last token, as a word goes on.
    tokens = rendered.tokens[:-1]
    first = kit.render(standing).tokens
    return Known(tokens, min(_common(first, tokens), len(tokens)), rendered.identity)


class _Head:
    """Messages rendered as the head of a prompt: all their tokens, and how many every continuation begins with."""

    def __init__(
        self,
        kit: TextKit,
        messages: tuple[Mapping[str, Any], ...],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        self._kit, self._tools, self._options = kit, tools, options
        full = [tokens for more in _continuations(messages) if (tokens := self._full(more)) is not None]
        self.identity = kit.render(messages, tools, options).identity if not full else full[0][1]
        shared = [tokens for tokens, _ in full]
        try:
            text = kit.template.render(messages, tools=tools, add_generation_prompt=False, **dict(options or {}))
            self.tokens = kit.tokenizer.encode_prompt(text)
        except InvalidRequest:
            # Some templates refuse to end here; the prompts that go on tell what they begin with.
            self.tokens = shared[0][: min(_common(shared[0], other) for other in shared)] if shared else ()
        self.known = min((_common(self.tokens, other) for other in shared), default=0)
        self.whole = bool(shared) and self.known == len(self.tokens)

    def _full(self, messages: tuple[Mapping[str, Any], ...]) -> tuple[tuple[int, ...], str] | None:
        try:
            rendered = self._kit.render(messages, self._tools, self._options)
        except InvalidRequest:
            return None
        return rendered.tokens, rendered.identity


def _continuations(messages: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """Prompts that may follow the known messages."""
    if messages[-1].get("role") in _ASKS:
        yield messages
        messages = (*messages, {"role": "assistant", "content": "b"})
    asker = "tool" if messages[-1].get("tool_calls") else "user"
    for probe in _PROBES:
        yield (*messages, {"role": asker, "content": probe})


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    length = min(len(one), len(other))
    return next((index for index in range(length) if one[index] != other[index]), length)
