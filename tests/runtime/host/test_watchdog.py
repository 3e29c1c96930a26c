"""Grants that don't end: found by their bound, once, and not on account of a pause of the whole machine."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from coresident.actors.errors import DeviceLost
from coresident.actors.work import CopyWork, DecodeWork, FetchWork, Grant, LoadWork, PrefixFile, StepRequest, WarmupWork
from coresident.policies.views import WorkClass
from coresident.runtime.config import DeviceConfig
from coresident.runtime.host.executor import DEVICE_THREAD
from coresident.runtime.host.executors import bounds_of
from coresident.runtime.host.live import open_live
from coresident.runtime.host.threaded import ThreadExecutor
from coresident.runtime.host.watchdog import Bounds, Watchdog
from structlog.testing import capture_logs

from coresident.scheduler import Scheduler
from support.live import LONG, Bench, device_threads, run
from support.workers import Lateness

SECOND = 10**9
COPY = CopyWork("m", "generation", 0, (1,), 4)


def grant(number, work=COPY):
    return Grant(number, StepRequest(f"s/{number}", "s", "r", WorkClass.FOREGROUND, work, 0, 0, 0))


def watch(scenario):
    """Run a scenario on a clock that jumps; the grants that were found to hang, with their errors."""
    hung = []

    async def main():
        watchdog = Watchdog(Bounds(10 * SECOND, 100 * SECOND), lambda: int(trio.current_time() * SECOND))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watchdog.watch, lambda grant, error: hung.append((grant.grant, error)))
            await scenario(watchdog)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return hung


def test_a_grant_that_does_not_end_is_found_once_and_says_its_bound():
    async def scenario(watchdog):
        await trio.sleep(3)
        watchdog.begin(grant(1))
        await trio.sleep(10)
        watchdog.begin(grant(2))
        await trio.sleep(5)
        watchdog.end(2)
        await trio.sleep(50)

    ((number, error),) = watch(scenario)
    assert number == 1
    assert isinstance(error, DeviceLost)
    assert "step s/1 (copy) has not ended after 11.0 s, the bound is 10.0 s (device.step_seconds)" in error.message
    assert error.details == {"step": "s/1", "taken_ns": 11 * SECOND, "bound_ns": 10 * SECOND}


@pytest.mark.parametrize("pause", [0, 1, 4, 9, 99])
def test_grants_that_end_in_time_are_left_alone_whenever_they_begin(pause):
    async def scenario(watchdog):
        await trio.sleep(pause)
        for number in range(30):
            watchdog.begin(grant(number))
            await trio.sleep(9.5)
            watchdog.end(number)
        watchdog.begin(grant(99, LoadWork("m")))
        await trio.sleep(99)
        watchdog.end(99)
        watchdog.end(99)

    assert watch(scenario) == []


def test_what_was_only_late_because_the_machine_stood_still_may_end_within_the_grace():
    async def scenario(watchdog):
        watchdog.begin(grant(1))
        await trio.sleep(10.5)
        watchdog.end(1)
        await trio.sleep(100)

    assert watch(scenario) == []


def test_bounds_are_by_kind_and_configured():
    bounds = bounds_of(DeviceConfig(step_seconds=3, load_seconds=7))
    assert bounds == Bounds(3 * SECOND, 7 * SECOND)
    file = FetchWork("m", 1, PrefixFile("/x", "l", "i", (), 0, 16))
    of = [bounds.of(work) // SECOND for work in (COPY, DecodeWork("m", (), 1), LoadWork("m"), WarmupWork("m"), file)]
    assert of == [3, 3, 7, 7, 7]


def test_a_thread_that_hangs_is_lost_takes_nothing_and_is_taken_back_when_it_returns():
    async def main():
        bench, late = Bench(), Lateness()

        def make(streams, post, clock):
            return ThreadExecutor(bench.backend, streams, bench.assembly.plans, post, late.watchdog(), clock)

        async with open_live(bench.assembly, (), make) as runtime:
            scheduler = Scheduler(runtime, bench.kits)
            expected = (await scheduler.generate(LONG, max_tokens=5, retain=False)).tokens
            held = bench.backend.hold("decode", skip=1)
            async with scheduler.generate(LONG, max_tokens=5, retain=False) as stream:
                await held.reached()
                assert scheduler.readiness().ready
                late.pass_by()
                with pytest.raises(DeviceLost, match=r"the device hangs.* its thread can't be ended"):
                    await stream.result()
            assert (scheduler.readiness().state, scheduler.statistics().executor.alive) == ("faulted", False)
            with pytest.raises(DeviceLost, match="takes nothing until it returns"):
                await scheduler.repair()
            held.release()
            while not scheduler.statistics().executor.alive:
                await trio.lowlevel.checkpoint()
            assert (await scheduler.repair()).ready
            assert (await scheduler.generate(LONG, max_tokens=5, retain=False)).tokens == expected
            assert scheduler.statistics().device.ledger.accounts["workspace"].used == 0
        bench.check_closed()

    run(main)


def test_closing_leaves_a_thread_behind_that_does_not_return(monkeypatch):
    monkeypatch.setattr("coresident.runtime.host.threaded.LAST_SECONDS", 0.05)

    async def main():
        bench, late = Bench(), Lateness()

        def make(streams, post, clock):
            return ThreadExecutor(bench.backend, streams, bench.assembly.plans, post, late.watchdog(), clock)

        with capture_logs() as logs:
            async with open_live(bench.assembly, (), make) as runtime:
                held = bench.backend.hold("prefill")
                async with Scheduler(runtime, bench.kits).generate(LONG, max_tokens=5) as stream:
                    await held.reached()
                    late.pass_by()
                    with pytest.raises(DeviceLost):
                        await stream.result()
        assert [log["thread"] for log in logs if log["event"] == "device.abandoned"] == [DEVICE_THREAD]
        assert bench.assembly.device.statistics().ledger.reserved == 0
        assert DEVICE_THREAD in device_threads()
        held.release()
        while device_threads():
            await trio.lowlevel.checkpoint()
        assert bench.backend.open_workspaces == 0

    run(main)
