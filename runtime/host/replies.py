"""Answers by the id of their question; the end of whoever answers fails all who wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from ...actors.errors import CoresidentError
from ..worker.flat import Body
from ..worker.messages import error_of


@attrs.define
class Reply:
    """One answer on its way."""

    _event: trio.Event = attrs.field(factory=trio.Event)
    _answer: Body | CoresidentError | None = None

    def settle(self, answer: Body | CoresidentError) -> None:
        if self._answer is None:
            self._answer = answer
            self._event.set()

    async def wait(self) -> Body:
        """The answer. Raises the error that came in its place."""
        await self._event.wait()
        if isinstance(self._answer, CoresidentError):
            raise self._answer.again()
        if self._answer is None:
            raise RuntimeError("an answer was announced that is not there")
        return self._answer


class Replies:
    """Who waits for which answer."""

    def __init__(self) -> None:
        self._waiting: dict[int, Reply] = {}
        self._ended: CoresidentError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def expect(self, identifier: int) -> Iterator[Reply]:
        """Wait for the answer of this id inside; who leaves without it is not waited for any longer."""
        reply = self._waiting[identifier] = Reply()
        if self._ended is not None:
            reply.settle(self._ended)
        try:
            yield reply
        finally:
            del self._waiting[identifier]

    def settle(self, body: Body) -> bool:
        """Give an answer to who waits for it; ``False`` when nobody does. Raises ``FrameInvalid``."""
        reply = self._waiting.get(body["id"])
        if reply is None:
            return False
        reply.settle(error_of(body) if body["kind"] == "error" else body)
        return True

    def fail_all(self, error: CoresidentError) -> None:
        """Nobody will answer: everybody who waits is told, and whoever asks later."""
        self._ended = error
        for reply in self._waiting.values():
            reply.settle(error)
