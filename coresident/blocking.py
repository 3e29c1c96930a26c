"""The front door for programs without an event loop: scripts, threads, notebooks. The methods of the Trio one, waiting.

Docstrings are those of the Trio front door: what they ``await`` is a plain call here, ``async with`` is ``with``, and a
generation that they await is asked for its ``whole``. A notebook keeps the block open between cells: ``stack =
contextlib.ExitStack()``, ``scheduler = stack.enter_context(open_scheduler())``, and ``stack.close()`` in the end.

Any thread may use a scheduler. A wait that ends by an exception, ``KeyboardInterrupt`` above all, cancels what it
waited for, and goes on when the device has let go.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from . import generation, opening, preparation, scheduler, scheduler_engine
from .actors.errors import Closed
from .facade import EngineFacade, Facade, GenerationFacade, PreparationFacade, SchedulerFacade, making
from .portal import Job, TrioThread, on_own_thread
from .results import Piece

__all__ = ["Generation", "Preparation", "Scheduler", "SchedulerEngine", "open_engine", "open_scheduler"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")

# Seconds of one wait: Windows does not interrupt a wait, so Ctrl-C is heard between two.
_PATIENCE = 0.1 if sys.platform == "win32" else None


def _result(job: Job[T]) -> T:
    """What came of a job. When the wait is interrupted the job is cancelled, and its end is waited for."""
    try:
        _done(job)
    except BaseException:
        job.cancel()
        _done(job)
        raise
    return job.future.result()


def _done(job: Job[T]) -> None:
    """Wait until a job has ended, however."""
    while not wait([job.future], _PATIENCE).done:
        pass


def waited(method: Callable[Concatenate[S, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for a task on the Trio thread."""

    def call(self: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _result(self._thread.submit(partial(method, self._inner, *args, **kwargs)))

    update_wrapper(call, method)
    return call


def opened(
    manager: Callable[P, AbstractAsyncContextManager[V]], make: Callable[[TrioThread[V], V], T]
) -> Callable[P, AbstractContextManager[T]]:
    """A block of the Trio front door on a thread of its own."""

    @contextmanager
    def block(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        thread = TrioThread(partial(manager, *args, **kwargs))
        try:
            yield make(thread, _result(thread.start()))
        finally:
            ended = thread.close()
            if not on_own_thread():
                try:
                    _result(Job(ended, lambda: None))
                finally:
                    thread.join()

    update_wrapper(block, manager)
    return block


class Generation(GenerationFacade):
    """Iterate it inside ``with`` to stream pieces, or ask for the ``whole`` at once."""

    def __init__(self, thread: TrioThread[Any], inner: generation.Generation) -> None:
        super().__init__(thread, inner)
        self._news = threading.Event()
        inner.watch(self._news.set)

    whole = waited(generation.Generation.whole)
    result = waited(generation.Generation.result)

    def __enter__(self) -> Self:
        job = self._thread.submit(self._inner.__aenter__)
        try:
            _result(job)
        except BaseException:
            if job.future.done() and job.future.exception() is None:
                # It was submitted all the same, and nobody leaves a block that was never entered.
                self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if on_own_thread():
            self._thread.post(partial(self._inner.cancel, "abandoned"))
            return
        with suppress(Closed):
            _result(self._leave())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        """The next piece. A wait that was interrupted loses none."""
        try:
            while True:
                # First cleared, then looked: what comes in between ends the wait.
                self._news.clear()
                piece = self._next()
                if piece is not None:
                    return piece
                while not self._news.wait(_PATIENCE):
                    pass
        except StopAsyncIteration:
            raise StopIteration from None


class Preparation(PreparationFacade):
    """Runs while the device is idle, from when it was made; wait for its ``result``, or leave it alone."""

    result = waited(preparation.Preparation.result)


class Scheduler(SchedulerFacade):
    """Generates and decides on one device. Made by ``open_scheduler``; any thread may use it."""

    generate = making(scheduler.Scheduler.generate, Generation)
    prepare = making(scheduler.Scheduler.prepare, Preparation)
    decide = waited(scheduler.Scheduler.decide)
    save_prefix = waited(scheduler.Scheduler.save_prefix)
    restore_prefix = waited(scheduler.Scheduler.restore_prefix)
    retry = waited(scheduler.Scheduler.retry)
    repair = waited(scheduler.Scheduler.repair)

    def engine(self, name: str) -> SchedulerEngine:
        """An engine over this scheduler, to be registered under an id."""
        return SchedulerEngine(self._thread, self._engine(name))


class SchedulerEngine(EngineFacade):
    """An engine over a scheduler: one that is open, or one that the first call opens."""

    view = making(scheduler_engine.SchedulerEngine.view, lambda thread, inner: SchedulerEngine(thread, inner))
    preload = waited(scheduler_engine.SchedulerEngine.preload)
    complete = waited(scheduler_engine.SchedulerEngine.complete)


open_scheduler = opened(opening.open_scheduler, Scheduler)
open_engine = opened(scheduler_engine.open_engine, SchedulerEngine)
