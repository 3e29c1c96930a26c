"""Tokens for an audit: where a trace has none, made up so that two sequences are equal exactly where they were.

A made-up token is the number of its place in its block, so no two blocks have a token in common by chance; the heads
that blocks share are taken from each other. No model sees them, so they need no vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..blocks import BlockNotes
from ..events_schedule import EndGeneration
from ..events_workload import Content


class AuditTokens:
    """Learns contents in the order of the trace, and gives their tokens."""

    def __init__(self, size: int) -> None:
        self._notes = BlockNotes(size)

    def learn(self, content: Content) -> None:
        """Take a content's notes. Raises :class:`~coresident.traces.codec.Malformed`."""
        self._notes.learn(content)

    def tokens(self, content: Content) -> tuple[int, ...]:
        """The tokens of a content that was learned."""
        if content.ids is not None:
            return content.ids
        size = self._notes.size
        made: list[int] = []
        for block in content.blocks:
            for other, start, stop in reversed(list(self._parts(block))):
                made.extend(range(other * size + start, other * size + stop))
        return tuple(made[: content.tokens])

    def output(self, end: EndGeneration) -> tuple[int, ...]:
        """What a request generated, as its end tells it."""
        if end.output is not None:
            return end.output
        return () if end.whole is None else self.tokens(end.whole)[end.prompt :]

    def _parts(self, block: int) -> Iterator[tuple[int, int, int]]:
        """Whose tokens a block is made of, from its end to its beginning: ``(block, start, stop)`` of places in it."""
        stop = self._notes.size
        while stop > 0:
            other, shared = self._notes.shares.get(block, (0, 0))
            start = min(shared, stop)
            if start < stop:
                yield block, start, stop
            block, stop = other, start
