"""Running a command under Trio: Ctrl-C cancels what runs, the scheduler drains, and only then the command ends."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from .failures import Interrupted

_T = TypeVar("_T")


class Interrupts:
    """Who hears Ctrl-C: the innermost ``calling`` block, or the whole run."""

    def __init__(self, run: trio.CancelScope) -> None:
        self._run = run
        self._inner: Callable[[], object] | None = None
        self._pressed = False
        self._token = trio.lowlevel.current_trio_token()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT inside the block."""
        before = signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def calling(self, function: Callable[[], object]) -> Iterator[None]:
        """Inside the block Ctrl-C calls ``function`` and ends nothing else."""
        self._inner = function
        try:
            yield
        finally:
            self._inner = None

    def check(self) -> None:
        """For work that does not await: raises ``Interrupted`` when Ctrl-C was pressed."""
        if self._pressed:
            raise Interrupted

    def _press(self, *_: object) -> None:
        self._pressed = self._inner is None
        self._token.run_sync_soon(self._hear)

    def _hear(self) -> None:
        if self._inner is not None:
            self._inner()
        else:
            self._run.cancel()


def run(main: Callable[[Interrupts], Awaitable[_T]]) -> _T:
    """Run to the end. Raises ``Interrupted`` when Ctrl-C ended it."""
    return trio.run(_supervised, main)


async def _supervised(main: Callable[[Interrupts], Awaitable[_T]]) -> _T:
    with trio.CancelScope() as scope:
        interrupts = Interrupts(scope)
        with interrupts.listening():
            return await main(interrupts)
    raise Interrupted
