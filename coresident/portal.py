"""A scheduler on a Trio thread of its own, for callers that don't run Trio: asyncio, plain threads, notebooks.

Rule 1: one thread for each open scheduler; it runs Trio, enters the scheduler's block, and leaves it when it is told
to. Rule 2: a call is a :class:`Job`: a task there, in the caller's context variables; its result or its error, whole,
is in a future. Rule 3: a cancelled job is waited for: when the caller goes on, the device has let go. Rule 4: an
interpreter that exits ends what is open first.

A call costs less this way than in Trio's guest mode, where every turn of the host's loop pays, and a host that blocks
its own loop does not stop the device.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import trio

from .actors.errors import Closed, InvalidRequest
from .runtime.host.executor import DEVICE_THREAD
from .runtime.host.groups import raise_only

T = TypeVar("T")
V = TypeVar("V")
Manager: TypeAlias = Callable[[], AbstractAsyncContextManager[V]]

# An end is bounded by one segment of the device; an exit does not hang on a device that never comes back.
_EXIT_SECONDS = 30
TRIO_THREAD = "coresident-trio"


@attrs.frozen(eq=False)
class Job(Generic[T]):
    """A call on its way on the Trio thread. ``future`` gets what comes of it; a cancelled one raises ``Closed``."""

    future: Future[T]
    cancel: Callable[[], object]


class TrioThread(Generic[V]):
    """Holds ``async with manager() as value`` open on a thread of its own, and runs calls beside it there."""

    def __init__(self, manager: Manager[V]) -> None:
        self._manager = manager
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._running = threading.Event()
        self._opened: Future[V] = Future()
        self._ended: Future[None] = Future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._calls: trio.Nursery | None = None
        self._opening = trio.CancelScope()
        self._closing = trio.Event()
        self._leaving = False
        self._open: set[Future[Any]] = set()

    # --- from any thread ----------------------------------------------------------------------------------------

    def start(self) -> Job[V]:
        """Begin to open, once. Cancelling the job gives the opening up."""
        atexit.register(self._at_exit)
        run = partial(copy_context().run, self._run)
        self._thread = threading.Thread(target=run, name=TRIO_THREAD, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            atexit.unregister(self._at_exit)
            raise
        self._running.wait()
        return Job(self._opened, partial(self._soon, self._opening.cancel))

    def close(self) -> Future[None]:
        """Let the block end, or give its opening up. The future gets what its end raised, when all is done there."""
        # The thread looks at this when it can be reached: one that has just been started can't be yet.
        self._leaving = True
        if not self._soon(self._leave) and not self.alive and not self._ended.done():
            self._ended.set_result(None)
        return self._ended

    def join(self) -> None:
        """Wait for the thread itself, which has nothing left to do."""
        if self._thread is not None and self.alive:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether anything may still come from the thread; a forked process has none."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, function: Callable[[], Awaitable[T]]) -> Job[T]:
        """Run an async function there. After the end its future raises ``Closed``."""
        scope = trio.CancelScope()
        future: Future[T] = self._new_call()
        if not self._soon(partial(copy_context().run, self._spawn, future, scope, function)):
            _fail(future, _closed())
        return Job(future, partial(self._soon, scope.cancel))

    def post(self, function: Callable[[], object]) -> None:
        """Run a function there some time, and wait for nothing; after the end it is forgotten."""
        self._soon(function)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function there and wait for it; after the end, when nothing else runs, here. Raises what it raises."""
        future: Future[T] = self._new_call()
        if not self._soon(partial(copy_context().run, _settle, future, function)):
            _fail(future, _closed())
            return function()
        return future.result()

    def _new_call(self) -> Future[T]:
        """What a call of this thread will come to."""
        self._check_caller()
        future: Future[T] = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def _check_caller(self) -> None:
        if os.getpid() != self._process:
            raise Closed("this process was forked from the one that has the scheduler: open another one here")
        if threading.current_thread() is self._thread:
            raise InvalidRequest(
                "this call comes from the scheduler's own thread and would wait for itself: use the Trio interface "
                "there, or call from another thread"
            )

    def _soon(self, function: Callable[[], object]) -> bool:
        """Have a function called on the Trio thread; ``False`` when that has ended. What it takes, it calls."""
        if self._token is None or not self.alive:
            return False
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return False
        return True

    def _at_exit(self) -> None:
        self.close()
        if self._thread is not None:
            self._thread.join(_EXIT_SECONDS)

    # --- on the Trio thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            _fail(self._ended if self._opened.done() else self._opened, error)
        finally:
            self._running.set()
            atexit.unregister(self._at_exit)
            for future in list(self._open):
                # Only when Trio itself has failed: else each call has ended by now.
                _fail(future, _closed())
            if not self._ended.done():
                self._ended.set_result(None)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._running.set()
        if self._leaving:
            self._leave()
        try:
            async with trio.open_nursery() as self._calls:
                try:
                    with self._opening:
                        async with self._manager() as value:
                            self._opened.set_result(value)
                            await self._closing.wait()
                finally:
                    # Requests have ended with the block; what still waits is told so.
                    calls, self._calls = self._calls, None
                    calls.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_only(group)
        if not self._opened.done():
            self._opened.set_exception(Closed("the opening was given up: open another one"))

    def _leave(self) -> None:
        self._closing.set()
        if not self._opened.done():
            self._opening.cancel()

    def _spawn(self, future: Future[T], scope: trio.CancelScope, function: Callable[[], Awaitable[T]]) -> None:
        if self._calls is None:
            future.set_exception(_closed())
        else:
            self._calls.start_soon(_carry, future, scope, function)


async def _carry(future: Future[T], scope: trio.CancelScope, function: Callable[[], Awaitable[T]]) -> None:
    """Run one call; its error belongs to its caller alone."""
    try:
        with scope:
            future.set_result(await function())
    except trio.Cancelled:
        future.set_exception(_closed())
        raise
    except BaseException as error:
        future.set_exception(error)
    if not future.done():
        future.set_exception(Closed("the call was cancelled"))


def on_own_thread() -> bool:
    """Whether this is a scheduler's own thread: one that collects garbage ends blocks there that nobody has left.

    To wait there for a scheduler would be to wait for itself.
    """
    return threading.current_thread().name in (TRIO_THREAD, DEVICE_THREAD)


def _settle(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


def _fail(future: Future[Any], error: BaseException) -> None:
    """End a call with an error, unless it has ended."""
    with suppress(InvalidStateError):
        future.set_exception(error)


def _closed() -> Closed:
    return Closed("the scheduler is closed: open another one")
