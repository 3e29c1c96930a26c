"""The front door for asyncio, uvloop and running web applications included: the methods of the Trio one.

A cancelled task, like a closed stream, stops the device within one step, and goes on when the device has let go.
Methods without ``await`` run on the scheduler's thread within the call, a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from . import generation, opening, preparation, scheduler, scheduler_engine
from .actors.errors import Closed
from .facade import EngineFacade, Facade, GenerationFacade, PreparationFacade, SchedulerFacade, making
from .portal import Job, TrioThread
from .results import GenerationResult, Piece

__all__ = ["Generation", "Preparation", "Scheduler", "SchedulerEngine", "open_engine", "open_scheduler"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")


def _end_of(job: Job[T]) -> asyncio.Future[None]:
    """What this loop can wait for until a job has ended, however."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    job.future.add_done_callback(lambda _: _tell(waiter))
    return waiter


async def _outlast(job: Job[T]) -> None:
    """Wait for the end of a job that takes at most one segment of the device, whatever this task is told.

    It may be told on each turn of the loop: cancel scopes of anyio do that.
    """
    ended = _end_of(job)
    while not job.future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ended])


async def _result(job: Job[T]) -> T:
    """What came of a job. When this task is cancelled so is the job, and its end is waited for."""
    try:
        if not job.future.done():
            await _end_of(job)
    except asyncio.CancelledError:
        job.cancel()
        await _outlast(job)
        raise
    return job.future.result()


def _tell(waiter: asyncio.Future[None]) -> None:
    """From any thread: wake who waits. A loop that has closed has nobody who does."""
    with suppress(RuntimeError):
        waiter.get_loop().call_soon_threadsafe(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def awaited(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that waits: it runs as a task on the Trio thread."""

    async def call(self: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await _result(self._thread.submit(partial(method, self._inner, *args, **kwargs)))

    update_wrapper(call, method)
    return call


def opened(
    manager: Callable[P, AbstractAsyncContextManager[V]], make: Callable[[TrioThread[V], V], T]
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """A block of the Trio front door on a thread of its own."""

    @asynccontextmanager
    async def block(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        thread = TrioThread(partial(manager, *args, **kwargs))
        try:
            yield make(thread, await _result(thread.start()))
        finally:
            try:
                await _result(Job(thread.close(), lambda: None))
            finally:
                thread.join()

    update_wrapper(block, manager)
    return block


class Generation(GenerationFacade):
    """``async with`` it to stream pieces, or ``await`` it for the result, as under Trio."""

    def __init__(self, thread: TrioThread[Any], inner: generation.Generation) -> None:
        super().__init__(thread, inner)
        self._waiters: deque[asyncio.Future[None]] = deque()
        inner.watch(self._news)

    whole = awaited(generation.Generation.whole)
    result = awaited(generation.Generation.result)

    async def __aenter__(self) -> Self:
        job = self._thread.submit(self._inner.__aenter__)
        try:
            await _result(job)
        except asyncio.CancelledError:
            if job.future.exception() is None:
                # It was submitted all the same, and nobody leaves a block that was never entered.
                await _outlast(self._leave())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(Closed):
            await _result(self._leave())

    def __await__(self) -> Generator[Any, Any, GenerationResult]:
        return self.whole().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        """The next piece. A wait that was cancelled loses none."""
        piece = self._next()
        while piece is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            # What came before the waiter was there wakes nobody.
            piece = self._next()
            if piece is None:
                await waiter
                piece = self._next()
        return piece

    def _news(self) -> None:
        """On the Trio thread."""
        while self._waiters:
            _tell(self._waiters.popleft())


class Preparation(PreparationFacade):
    """Runs while the device is idle, from when it was made; ``await`` its ``result``, or leave it alone."""

    result = awaited(preparation.Preparation.result)


class Scheduler(SchedulerFacade):
    """Generates and decides on one device. Made by ``open_scheduler``; any event loop of the process may use it."""

    generate = making(scheduler.Scheduler.generate, Generation)
    prepare = making(scheduler.Scheduler.prepare, Preparation)
    decide = awaited(scheduler.Scheduler.decide)
    save_prefix = awaited(scheduler.Scheduler.save_prefix)
    restore_prefix = awaited(scheduler.Scheduler.restore_prefix)
    retry = awaited(scheduler.Scheduler.retry)
    repair = awaited(scheduler.Scheduler.repair)

    def engine(self, name: str) -> SchedulerEngine:
        """An engine over this scheduler, to be registered under an id."""
        return SchedulerEngine(self._thread, self._engine(name))


class SchedulerEngine(EngineFacade):
    """An engine over a scheduler: one that is open, or one that the first call opens."""

    view = making(scheduler_engine.SchedulerEngine.view, lambda thread, inner: SchedulerEngine(thread, inner))
    preload = awaited(scheduler_engine.SchedulerEngine.preload)
    complete = awaited(scheduler_engine.SchedulerEngine.complete)


open_scheduler = opened(opening.open_scheduler, Scheduler)
open_engine = opened(scheduler_engine.open_engine, SchedulerEngine)
