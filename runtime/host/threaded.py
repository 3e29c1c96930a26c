"""The executor that runs grants on a thread of this process.

A thread can't be ended from outside: one that hangs is given up for dead, further grants are refused while it does, and
closing leaves it behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio

from ...actors.errors import DeviceLost
from ...actors.messages import Failed, GrantEnded
from ...actors.work import Grant
from ..backends.contract import Backend, PlanRequest, Sampler
from ..logged import Logged, complain
from .executor import DeviceExecutor, ExecutorStatistics, Outcome, Post
from .steps import Takers
from .watchdog import Watchdog

LAST_SECONDS = 1.0


class ThreadExecutor(DeviceExecutor):
    """A :class:`~.executor.Executor`: the device's thread, and a watchdog for its grants."""

    def __init__(
        self,
        backend: Backend,
        streams: Takers,
        plans: Mapping[str, PlanRequest],
        post: Post,
        watchdog: Watchdog,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(backend, streams, plans, post, clock)
        self._watchdog = watchdog
        self._stuck: tuple[int, DeviceLost] | None = None

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def running(self) -> AsyncIterator[None]:
        """The thread runs inside. It has ended afterwards, unless its step is overdue: then it is left behind."""
        self.start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watchdog.watch, self._hung)
                yield
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._leave()

    @property
    def alive(self) -> bool:
        return self._stuck is None and self._thread.is_alive()

    def statistics(self) -> ExecutorStatistics:
        started = self._thread.ident is not None
        return ExecutorStatistics("thread", os.getpid() if started else None, self.alive, int(started))

    def check_sampler(self, sampler: Sampler) -> None:
        """Any sampler can be called here."""

    def run(self, grant: Grant) -> None:
        stuck = self._stuck
        if stuck is not None:
            self._post("device", GrantEnded(grant.grant, Failed(stuck[1].again(), sticky=True)))
            return
        self._watchdog.begin(grant)
        super().run(grant)

    def _end(self, grant: int, outcome: Outcome) -> bool:
        self._watchdog.end(grant)
        ours = super()._end(grant, outcome)
        stuck = self._stuck
        if not ours and stuck is not None and stuck[0] == grant:
            self._stuck = None
        return ours

    def _hung(self, grant: Grant, error: DeviceLost) -> None:
        flags = self._flags.get(grant.grant)
        if flags is None:
            return
        flags.yield_asked = flags.give_up = True
        if flags.run is not None:
            flags.run.abandoned = True
        error = DeviceLost(
            f"{error.message}; its thread can't be ended and takes nothing until it returns; then retry or repair",
            **error.details,
        )
        # Before the grant is ended here: when the thread finds it ended, it finds this too.
        self._stuck = (grant.grant, error)
        if not super()._end(grant.grant, Failed(error, sticky=True)):
            self._stuck = None

    async def _leave(self) -> None:
        bound = max(LAST_SECONDS, 0.0 if self._stuck else self._watchdog.remaining())
        if not await trio.to_thread.run_sync(partial(self.end_within, bound)):
            complain(Logged.DEVICE_ABANDONED, thread=self._thread.name, waited_seconds=bound)
