"""Cancelling a task at its n-th step: a sweep over n reaches every checkpoint it has."""

from __future__ import annotations

import trio


class CancelAt(trio.abc.Instrument):
    """Calls ``act`` at the n-th step of the task that created it, ``before`` the step or ``after`` it."""

    def __init__(self, n: int, when: str, act) -> None:
        self._task = trio.lowlevel.current_task()
        self._left = n
        self._when = when
        self._act = act
        self.acted = False

    def before_task_step(self, task) -> None:
        self._step(task, "before")

    def after_task_step(self, task) -> None:
        self._step(task, "after")

    def _step(self, task, when: str) -> None:
        if task is self._task and when == self._when and not self.acted:
            self._left -= 1
            if self._left == 0:
                self.acted = True
                self._act()


async def cancelled_at(n: int, when: str, work) -> bool:
    """Run ``work`` in this task and cancel it at its n-th step; whether it got that far."""
    with trio.CancelScope() as scope:
        instrument = CancelAt(n, when, scope.cancel)
        trio.lowlevel.add_instrument(instrument)
        try:
            await work()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return instrument.acted
