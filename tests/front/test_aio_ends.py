"""How what was begun under asyncio ends: cancels at every moment, and loops that go away."""

from __future__ import annotations

import asyncio
import logging

import pytest
from coresident.actors.errors import Closed

from coresident import aio
from support.live import Bench, config

PROMPT = "The sea is wide and the wind is"
SMALL = config()


def bench_open(bench: Bench):
    return aio.opened(bench.open, lambda thread, desk: aio.Scheduler(thread, desk.scheduler))()


async def drained(scheduler: aio.Scheduler) -> None:
    while (now := scheduler.statistics()).generation.open or now.device.state != "idle" or now.streams:
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(6))
def test_a_stream_that_is_cancelled_while_it_is_entered_ends(turns):
    """It was submitted, perhaps, and its block was never entered: nobody would leave it."""

    async def main() -> None:
        bench = Bench(SMALL)
        async with bench_open(bench) as scheduler:
            generation = scheduler.generate(PROMPT, max_tokens=400, ignore_stop_tokens=True)

            async def client() -> None:
                async with generation:
                    await asyncio.Event().wait()

            task = asyncio.create_task(client())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await drained(scheduler)
            if turns:
                assert (await generation.result()).outcome == "cancelled"
        bench.check_closed()

    asyncio.run(main())


def test_timeouts_and_groups_keep_their_counts():
    async def whole(scheduler: aio.Scheduler) -> None:
        async with asyncio.timeout(0.02):
            while True:
                await scheduler.generate(PROMPT, max_tokens=400)

    async def streamed(scheduler: aio.Scheduler) -> None:
        async with asyncio.timeout(0.02), asyncio.timeout(None):
            while True:
                async with scheduler.generate(PROMPT, max_tokens=400) as stream:
                    async for _ in stream:
                        pass

    async def grouped(scheduler: aio.Scheduler) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.generate(PROMPT, max_tokens=400).whole())
            await asyncio.sleep(0)
            raise ZeroDivisionError

    async def main() -> None:
        async with aio.open_scheduler(SMALL) as scheduler:
            for late in (whole, streamed):
                with pytest.raises(TimeoutError):
                    await late(scheduler)
                assert asyncio.current_task().cancelling() == 0
            with pytest.raises(ExceptionGroup) as group:
                await grouped(scheduler)
            assert [type(error) for error in group.value.exceptions] == [ZeroDivisionError]
            await drained(scheduler)

    asyncio.run(main(), debug=True)


def test_a_task_that_is_cancelled_on_every_turn_waits_as_well():
    """Cancel scopes of anyio, and so web frameworks, repeat themselves until the task has ended."""

    async def main() -> None:
        bench = Bench(SMALL)
        async with aio.opened(bench.open, lambda thread, desk: (thread, desk))() as (thread, desk):
            scheduler = aio.Scheduler(thread, desk.scheduler)
            held = thread.call(lambda: bench.backend.hold("decode"))
            task = asyncio.create_task(scheduler.generate(PROMPT, max_tokens=400).whole())
            await asyncio.wrap_future(thread.submit(held.reached).future)
            for _ in range(100):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done()
            assert sum(len(future._done_callbacks) for future in thread._open) < 5
            held.release()
            with pytest.raises(asyncio.CancelledError):
                await task
        bench.check_closed()

    asyncio.run(main())


def test_a_loop_that_closes_under_a_call_is_no_error_of_the_scheduler(caplog):
    bench = Bench(SMALL)
    loop, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    block = bench_open(bench)
    left = []

    async def begin() -> None:
        scheduler = await block.__aenter__()
        left.append(loop.create_task(scheduler.generate(PROMPT, max_tokens=400).whole()))
        stream = await scheduler.generate(PROMPT, max_tokens=400).__aenter__()
        left.append(loop.create_task(anext(stream)))
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    loop.close()
    other.run_until_complete(block.__aexit__(None, None, None))
    other.close()
    bench.check_closed()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    for task in left:
        task._log_destroy_pending = False


def test_a_closed_scheduler_hides_no_error_of_a_block_that_is_left_after_it():
    async def main() -> None:
        async with aio.open_scheduler(SMALL) as scheduler:
            stream = await scheduler.generate(PROMPT, max_tokens=400).__aenter__()
        await stream.__aexit__(None, None, None)
        with pytest.raises(Closed):
            [piece async for piece in stream]

    asyncio.run(main())
