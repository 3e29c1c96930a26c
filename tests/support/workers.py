"""A live scheduler over worker processes that break on command, and what must hold while and after it runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from coresident.actors.messages import GrantEnded
from coresident.actors.work import Grant, StepRequest
from coresident.policies.views import WorkClass
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.host.assembly import Assembly, assemble
from coresident.runtime.host.executors import setup_of
from coresident.runtime.host.live import LiveRuntime, open_live
from coresident.runtime.host.process import ProcessExecutor
from coresident.runtime.host.steps import Streams
from coresident.runtime.host.watchdog import Bounds, Watchdog
from coresident.runtime.worker.messages import hello_body

from coresident.scheduler import Scheduler
from support.live import config, device_threads

SCRIPT = Path(__file__).with_name("faulty_worker.py")
FAR = 10**18
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


class Lateness:
    """A watchdog's clock and sleep: time passes when the test says so, and then a lot of it."""

    def __init__(self) -> None:
        self._offset = 0
        self._wakes = trio.Semaphore(0)

    def clock(self) -> int:
        return time.monotonic_ns() + self._offset

    async def sleep(self, seconds: float) -> None:
        await self._wakes.acquire()

    def pass_by(self) -> None:
        """Every grant that runs now is overdue."""
        self._offset += FAR
        # Once to look, and once more after the grace.
        self._wakes.release()
        self._wakes.release()

    def watchdog(self) -> Watchdog:
        return Watchdog(Bounds(FAR // 2, FAR // 2), self.clock, self.sleep)


def state_of(pid: int) -> str:
    """The state letter of a process: ``T`` is stopped; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@attrs.frozen
class WorkerDesk:
    """An open scheduler over worker processes."""

    scheduler: Scheduler
    runtime: LiveRuntime
    assembly: Assembly
    folder: Path
    late: Lateness

    def arm(self, operation: str, act: str, segment: int = 1) -> None:
        """Break the worker at a point of the next such operation."""
        arm(self.folder, operation, act, segment)

    @property
    def armed(self) -> bool:
        return (self.folder / "fault.json").exists()

    @property
    def pid(self) -> int:
        pid = self.runtime.statistics().executor.pid
        assert pid is not None
        return pid

    async def until(self, true) -> None:
        """Wait for something outside of Trio; the test's own limit is the watchdog."""
        while not true():
            await trio.sleep(0.002)

    async def reached(self) -> None:
        """Wait until the worker holds at a point armed with ``hold``."""
        await self.until((self.folder / "reached").exists)
        (self.folder / "reached").unlink()

    async def heard(self) -> None:
        """Wait until the worker has taken all that was said to it: it answers in order."""
        await trio.testing.wait_all_tasks_blocked()
        await self.runtime.host.executor._worker.ask(hello_body(-9))

    def release(self) -> None:
        (self.folder / "release").touch()

    async def faulted(self) -> None:
        await self.until(lambda: self.runtime.assembly.supervisor.readiness().state == "faulted")

    async def overdue_when_stopped(self) -> None:
        """Wait until the worker has stopped, then let the watchdog see that."""
        await self.until(lambda: "T" in map(state_of, pids_in(self.folder)))
        self.late.pass_by()

    def living(self) -> list[int]:
        """Workers that have not been reaped."""
        return [pid for pid in pids_in(self.folder) if state_of(pid)]

    def check_empty(self) -> None:
        """Nothing is charged, waits or runs."""
        now = self.scheduler.statistics()
        decisions = now.decision.open if now.decision is not None else 0
        assert (now.generation.open, decisions, now.device.waiting, now.streams) == (0, 0, 0, 0)
        assert now.device.ledger.accounts["workspace"].used == 0
        assert self.runtime.host.listening == 0


@asynccontextmanager
async def workers(
    folder: Path, observers=(), grace: float = 5.0, command=None, **sections
) -> AsyncIterator[WorkerDesk]:
    """Open a small scheduler over worker processes, and check what must hold after it closed."""
    settings = config(**sections)
    opened = open_backend(settings)
    assembly = assemble(settings, opened.backend, opened.heads)
    late = Lateness()
    setup = setup_of(assembly)
    setup = attrs.evolve(setup, command=command or command_in(folder), grace=grace)

    def make(streams, post, clock):
        return ProcessExecutor(setup, streams, post, late.watchdog(), clock)

    try:
        async with open_live(assembly, observers, make) as runtime:
            yield WorkerDesk(Scheduler(runtime, opened.kits), runtime, assembly, folder, late)
    finally:
        check_closed(assembly, folder)


def command_in(folder: Path, last_seconds: float = 0.2) -> tuple[str, ...]:
    """A worker that takes its orders from ``folder``; at its end it waits so long for what still runs."""
    return (sys.executable, "-P", str(SCRIPT), str(folder), str(last_seconds))


@cache
def small_assembly() -> Assembly:
    """Plans and digests of the small configuration, for executors without actors."""
    opened = open_backend(config())
    return assemble(config(), opened.backend, opened.heads)


class Direct:
    """An executor without actors, and what it posts."""

    def __init__(self, folder: Path = Path(), **changes) -> None:
        setup = attrs.evolve(setup_of(small_assembly()), command=command_in(folder), grace=2.0)
        self.posted, self.folder = [], folder
        self.executor = ProcessExecutor(
            attrs.evolve(setup, **changes),
            Streams(lambda request, index: None),
            lambda to, message: self.posted.append((to, message)),
            Lateness().watchdog(),
        )

    def run(self, number, work, charge=0):
        step = StepRequest(f"s/{number}", "s", "s", WorkClass.FOREGROUND, work, charge, 0, 0)
        self.executor.run(Grant(number, step))

    async def ended(self, number):
        """The outcome of a grant; each has one."""
        while number not in [message.grant for _, message in self.posted if isinstance(message, GrantEnded)]:
            await trio.sleep(0.002)
        (outcome,) = [m.outcome for _, m in self.posted if isinstance(m, GrantEnded) and m.grant == number]
        return outcome

    def arm(self, operation, act, segment=1):
        arm(self.folder, operation, act, segment)


def arm(folder: Path, operation: str, act: str, segment: int) -> None:
    """Leave a worker's next order to break, whole."""
    order = folder / "fault.new"
    order.write_text(json.dumps({"operation": operation, "segment": segment, "act": act}))
    order.rename(folder / "fault.json")


def pids_in(folder: Path) -> list[int]:
    """Every worker that was started with this folder."""
    return sorted(int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*"))


def check_closed(assembly: Assembly, folder: Path) -> None:
    """Every byte returned, no process, zombie or thread left."""
    device = assembly.device.statistics()
    assert (device.state, device.waiting, device.ledger.reserved, dict(device.ledger.accounts)) == ("closed", 0, 0, {})
    assert assembly.generation.statistics().open == 0
    assert assembly.supervisor.readiness().state == "closed"
    assert [pid for pid in pids_in(folder) if state_of(pid)] == []
    assert device_threads() == []
