"""Running a command under Trio: Ctrl-C cancels what runs, the scheduler drains, and only then the command ends.

A second Ctrl-C ends the process at once: what runs may be a user's policy that never comes back.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import trio

from .failures import INTERRUPTED, Interrupted

_T = TypeVar("_T")
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupts:
    """Who hears Ctrl-C: the innermost ``calling`` block, or the whole run."""

    def __init__(self, run: trio.CancelScope) -> None:
        self._run = run
        self._inner: Callable[[], object] | None = None
        self._pressed = False
        self._unheard = False
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
        if self._pressed or self._unheard:
            _end_at_once()
        self._pressed = self._inner is None
        self._unheard = True
        self._token.run_sync_soon(self._hear)

    def _hear(self) -> None:
        self._unheard = False
        if self._inner is not None:
            self._inner()
        else:
            self._run.cancel()


def _end_at_once() -> NoReturn:
    """Past everything that may never end, with the cursor that live displays hide; traces stay without their end."""
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR + b"\n")
    os._exit(INTERRUPTED)


def run(main: Callable[[Interrupts], Awaitable[_T]]) -> _T:
    """Run to the end. Raises ``Interrupted`` when Ctrl-C ended it."""
    return trio.run(_supervised, main)


async def _supervised(main: Callable[[Interrupts], Awaitable[_T]]) -> _T:
    with trio.CancelScope() as scope:
        interrupts = Interrupts(scope)
        with interrupts.listening():
            return await main(interrupts)
    raise Interrupted
