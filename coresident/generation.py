"""One generation as its client sees it: a stream of pieces, and a result.

Tokens become pieces on the device's thread and are handed to the Trio thread in order. ``max_tokens`` bounds how many
there are, so a slow reader grows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Self

import trio

from .actors.errors import BackendFault, CoresidentError, InvalidRequest
from .actors.events import GenerationEnded, PrefixReused, Refused, RequestEvent
from .actors.messages import SubmitGeneration
from .results import GenerationResult, Piece, text_of, tool_calls_of
from .runtime.backends.contract import Sampled, Sampler
from .runtime.host.assembly import GENERATION
from .runtime.host.live import LiveRuntime
from .runtime.host.steps import Stream
from .runtime.models.channel_events import MalformedChannels
from .sinks import Sink


class Generation:
    """``async with`` it to stream pieces, or ``await`` it for the result. Entering or awaiting submits it, once.

    Leaving the block early cancels the request; the exit waits until the device has let go of it, at most one segment.
    """

    def __init__(self, runtime: LiveRuntime, message: SubmitGeneration, sampler: Sampler, sink: Sink) -> None:
        self.request = message.request
        self._runtime = runtime
        self._message = message
        self._sampler = sampler
        self._sink = sink
        self._send, self._receive = trio.open_memory_channel[Piece](math.inf)
        self._ended = trio.Event()
        self._end: GenerationEnded | None = None
        self._error: CoresidentError | None = None
        self._pieces: list[Piece] = []
        self._submitted = 0
        self._first: int | None = None
        self._finished = 0
        self._entered = False
        self._given_up: str | None = None
        self._failure: CoresidentError | None = None
        self._notice: Callable[[], object] | None = None
        self.reuse: PrefixReused | None = None

    # --- the client's side --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._entered:
            raise InvalidRequest(f"generation {self.request} was already started: ask the scheduler for another one")
        self._entered = True
        self._submitted = self._runtime.host.clock()
        if self._given_up is not None:
            self._end_unsubmitted(self._given_up)
            return self
        stream = Stream(self._sampler, self._token)
        try:
            self._runtime.generate(self._message, stream, self._event)
        except CoresidentError as error:
            self._finish(error, self._submitted)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended.is_set():
            self.cancel("abandoned")
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    def __await__(self) -> Generator[Any, Any, GenerationResult]:
        return self.whole().__await__()

    async def whole(self) -> GenerationResult:
        """Start it and wait for the result."""
        async with self:
            return await self.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        """The next piece. Raises the typed error when the request was refused or failed, after the pieces it had."""
        self._check_started()
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            if self._error is not None:
                raise self._error.again() from None
            raise StopAsyncIteration from None

    def watch(self, notice: Callable[[], object]) -> None:
        """Have a function called, on the Trio thread, when a piece has come and at the end: for readers elsewhere."""
        self._notice = notice

    def piece(self, index: int) -> Piece | None:
        """The piece of that number, ``None`` while it has not come; from any thread. Raises as iterating does."""
        self._check_started()
        ended = self._ended.is_set()
        if index < len(self._pieces):
            return self._pieces[index]
        if not ended:
            return None
        if self._error is not None:
            raise self._error.again()
        raise StopAsyncIteration

    def cancel(self, reason: str = "cancelled") -> None:
        """Ask for the end; the device stops within one segment. The chunks that completed are kept.

        Before it was entered or awaited: it will end as cancelled without being submitted. ``reason`` is any text.
        """
        if self._entered:
            self._runtime.cancel(GENERATION, self.request, reason)
        elif self._given_up is None:
            self._given_up = reason

    async def result(self) -> GenerationResult:
        """Wait for the end. Raises the typed error when the request was refused or failed."""
        self._check_started()
        await self._ended.wait()
        if self._error is not None:
            raise self._error.again()
        end = self._end
        if end is None:
            raise BackendFault(f"generation {self.request} ended without saying how")
        return GenerationResult(
            request=self.request,
            text=text_of("answer", self._pieces),
            tokens=tuple(piece.token for piece in self._pieces if piece.token is not None),
            outcome=end.outcome,
            reason=end.reason,
            prompt_tokens=end.prompt,
            reused=end.reused,
            prefilled=end.prefilled,
            first_token_ns=None if self._first is None else self._first - self._submitted,
            total_ns=self._finished - self._submitted,
            thought=text_of("thought", self._pieces),
            tool_calls=tool_calls_of(self._pieces, self._sink.open_call),
            thought_cut=self._sink.thought_cut,
        )

    def _end_unsubmitted(self, reason: str) -> None:
        self._end = GenerationEnded(self.request, "cancelled", reason, len(self._message.prompt), 0, 0, 0)
        self._finish(None, self._submitted)

    def _check_started(self) -> None:
        if not self._entered:
            raise InvalidRequest(f"generation {self.request} was not started: use it in async with, or await it")

    # --- the host's side ----------------------------------------------------------------------------------------

    def _token(self, request: str, sampled: Sampled) -> str | CoresidentError | None:
        """On the device's thread: the reason to stop here, or ``None``; an error ends the request as failed."""
        try:
            return self._sink.take(sampled, self._arrived)
        except MalformedChannels as error:
            self._failure = error
        except Exception as error:
            # Other requests share the step, so what goes wrong with this one's text ends only this one.
            self._failure = BackendFault(f"the text of token {sampled.token} failed: {error!r}")
        return self._failure

    def _arrived(self, piece: Piece) -> None:
        """From the device's thread: hand a piece to the Trio thread."""
        at = self._runtime.host.clock()
        self._runtime.host.call(lambda: self._take(piece, at))

    def _take(self, piece: Piece, at: int) -> None:
        if self._ended.is_set():
            return
        if piece.token is not None:
            self._first = at if self._first is None else self._first
        self._pieces.append(piece)
        self._send.send_nowait(piece)
        if self._notice is not None:
            self._notice()

    def _event(self, event: RequestEvent, at: int) -> None:
        match event:
            case PrefixReused():
                self.reuse = event
            case Refused(error=error):
                self._finish(error, at)
            case GenerationEnded():
                self._end = event
                if self._failure is None:
                    self._rest(event, at)
                self._finish(event.error or self._failure, at)
            case _:
                pass

    def _rest(self, end: GenerationEnded, at: int) -> None:
        """The text that was held back; what goes wrong with it is this request's own error."""
        try:
            self._sink.rest(end, lambda piece: self._take(piece, at))
        except CoresidentError as error:
            self._failure = error
        except Exception as error:
            self._failure = BackendFault(f"the last text of {self.request} failed: {error!r}")

    def _finish(self, error: CoresidentError | None, at: int) -> None:
        self._error, self._finished = error, at
        self._runtime.finished(self.request)
        self._ended.set()
        self._send.close()
        # Nothing more will come, so a reader elsewhere is not kept either.
        notice, self._notice = self._notice, None
        if notice is not None:
            notice()
