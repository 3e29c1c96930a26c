"""The same scheduler through another front door: a test written for Trio drives it from outside.

``trio`` is the scheduler itself. ``asyncio`` opens it through ``coresident.aio`` on an event loop of its own thread;
a cancelled wait of the test cancels the task there. ``blocking`` opens it through ``coresident.blocking``, each call
on a worker thread; a wait there can't be cancelled, so tests that need that name the doors they go through.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from coresident import aio, blocking
from coresident.facade import Facade

DOORS = ("trio", "asyncio", "blocking")


class LoopThread:
    """An asyncio loop that runs on a thread of its own while the block is open."""

    async def __aenter__(self) -> LoopThread:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio loop of a test")
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            left = await self.run(self._tasks)
            self._loop.call_soon_threadsafe(self._loop.stop)
            await trio.to_thread.run_sync(self._thread.join)
        self._loop.close()
        assert left == 0, f"{left} asyncio tasks are left"

    async def _tasks(self) -> int:
        """Tasks that don't end by themselves: clients beside the block are told of its end only now."""
        others = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        if not others:
            return 0
        _, left = await asyncio.wait(others, timeout=5)
        return len(left)

    async def run(self, call: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        """Await a call as a task of the loop; when this wait is cancelled the task is, and its end is waited for."""
        token, ended = trio.lowlevel.current_trio_token(), trio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def task() -> Any:
            return await call(*args, **options)

        def start() -> None:
            tasks.append(self._loop.create_task(task()))
            tasks[0].add_done_callback(lambda _: token.run_sync_soon(ended.set))

        self._loop.call_soon_threadsafe(start)
        try:
            await ended.wait()
        except trio.Cancelled:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            with trio.CancelScope(shield=True):
                await ended.wait()
            tasks[0].cancelled() or tasks[0].exception()
            raise
        return tasks[0].result()


class Outside:
    """An object of another front door, with the Trio one's interface."""

    def __init__(self, inner: Any, run: Callable[..., Awaitable[Any]], names: dict[str, str]) -> None:
        self._inner = inner
        self._run = run
        self._names = names

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        waits = inspect.iscoroutinefunction(inspect.unwrap(value))
        return partial(self._run, value) if waits else partial(self._call, value)

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = method(*args, **options)
        return Outside(result, self._run, self._names) if isinstance(result, Facade) else result

    def _special(self, name: str, *args: Any) -> Awaitable[Any]:
        return self._run(getattr(self._inner, self._names.get(name, name)), *args)

    async def __aenter__(self) -> Outside:
        await self._special("__aenter__")
        return self

    async def __aexit__(self, *_: object) -> None:
        # The end of a request is waited for whatever the test's task is told: the doors' own waits are shielded too.
        with trio.CancelScope(shield=True):
            await self._special("__aexit__", None, None, None)

    def __aiter__(self) -> Outside:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._special("__anext__")
        except StopIteration:
            raise StopAsyncIteration from None

    def __await__(self) -> Any:
        return self._special("whole").__await__()


_WAITING = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__anext__": "__next__"}


async def _on_a_thread(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A blocking call; ``StopIteration`` can't leave a coroutine, so it is carried across as a value."""

    def guarded() -> tuple[bool, Any]:
        try:
            return True, call(*args, **options)
        except StopIteration:
            return False, None

    going, value = await trio.to_thread.run_sync(guarded)
    if not going:
        raise StopAsyncIteration
    return value


@asynccontextmanager
async def through(door: str, manager: Callable[[], Any]) -> AsyncIterator[tuple[Any, Callable[[Any], Any]]]:
    """``(what the manager gives, how its scheduler is seen)`` through a door."""
    if door == "trio":
        async with manager() as value:
            yield value, lambda scheduler: scheduler
    elif door == "asyncio":
        async with LoopThread() as loop:
            block = aio.opened(manager, lambda thread, value: (thread, value))()
            thread, value = await loop.run(block.__aenter__)
            try:
                yield value, lambda inner: Outside(aio.Scheduler(thread, inner), loop.run, {})
            finally:
                with trio.CancelScope(shield=True):
                    await loop.run(block.__aexit__, None, None, None)
    else:
        waiting = blocking.opened(manager, lambda thread, value: (thread, value))()
        thread, value = await trio.to_thread.run_sync(waiting.__enter__)
        try:
            yield value, lambda inner: Outside(blocking.Scheduler(thread, inner), _on_a_thread, _WAITING)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(waiting.__exit__, None, None, None)
