"""Hung steps, found by a bound on the time of one grant.

A grant costs nothing here but an entry: one task looks at the clock when the shortest bound has passed, and again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

import attrs
import trio

from ...actors.errors import DeviceLost
from ...actors.work import Grant, StepKind, Work

_LONG = (StepKind.LOAD, StepKind.WARMUP, StepKind.STORE, StepKind.FETCH)
_GRACE_SHARE = 8
_GRACE_NS = 1_000_000_000


@attrs.frozen
class Bounds:
    """How long a grant may take, in nanoseconds: ``load_ns`` for loads, warm-ups and files, else ``step_ns``."""

    step_ns: int
    load_ns: int

    def of(self, work: Work) -> int:
        return self.load_ns if work.kind in _LONG else self.step_ns

    @property
    def shortest(self) -> int:
        return min(self.step_ns, self.load_ns)


@attrs.frozen
class _Watched:
    grant: Grant
    since: int
    bound: int


class Watchdog:
    """Watches the grants of one executor. ``begin`` and ``end`` may be called from any thread."""

    def __init__(
        self,
        bounds: Bounds,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    ) -> None:
        self._bounds = bounds
        self._clock = clock
        self._sleep = sleep
        self._watched: dict[int, _Watched] = {}

    def begin(self, grant: Grant) -> None:
        """A grant begins now."""
        self._watched[grant.grant] = _Watched(grant, self._clock(), self._bounds.of(grant.step.work))

    def end(self, grant: int) -> None:
        """A grant has ended; one that is not watched is no error."""
        self._watched.pop(grant, None)

    def remaining(self) -> float:
        """Seconds until the last of the running grants is overdue, at least 0."""
        now = self._clock()
        return max((one.since + one.bound - now for one in list(self._watched.values())), default=0) / 1e9

    @trio.lowlevel.enable_ki_protection
    async def watch(self, hung: Callable[[Grant, DeviceLost], None]) -> None:
        """Call ``hung`` once for each grant that does not end within its bound, until cancelled."""
        while True:
            await self._sleep(self._until_next() / 1e9)
            late = self._late()
            if late:
                # After a pause of the whole machine everything seems late: what isn't stuck ends within the grace.
                await self._sleep(min(_GRACE_NS, self._bounds.shortest // _GRACE_SHARE) / 1e9)
                for one in late:
                    if self._watched.pop(one.grant.grant, None) is not None:
                        hung(one.grant, self._error(one))

    def _until_next(self) -> int:
        now = self._clock()
        ends = min((one.since + one.bound for one in list(self._watched.values())), default=math.inf)
        return max(0, int(min(ends - now, self._bounds.shortest)))

    def _late(self) -> list[_Watched]:
        now = self._clock()
        return [one for one in list(self._watched.values()) if now - one.since >= one.bound]

    def _error(self, one: _Watched) -> DeviceLost:
        taken, step = self._clock() - one.since, one.grant.step
        key = "device.load_seconds" if step.work.kind in _LONG else "device.step_seconds"
        return DeviceLost(
            f"step {step.step} ({step.work.kind}) has not ended after {taken / 1e9:.1f} s, the bound is "
            f"{one.bound / 1e9:.1f} s ({key}): the device hangs",
            step=step.step,
            taken_ns=taken,
            bound_ns=one.bound,
        )
