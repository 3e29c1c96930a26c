"""The asyncio front door: what is its own beside the live host's contract, which runs through it as well."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import threading
from contextlib import asynccontextmanager

import pytest
import trio
from coresident.actors.events import DecisionEnded, GenerationEnded, Refused

from coresident import Closed, Config, ContextExceeded, EngineRegistry, InvalidRequest, aio
from coresident.engine import Call
from support.live import LONG, Bench, config, device_threads
from support.parts import require_or_skip

PROMPT = "The sea is wide and the wind is"
SMALL = config()


class Ends:
    """An observer that counts how often each request ended."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}

    def delivered(self, delivery) -> None:
        for event in delivery.events():
            if isinstance(event, GenerationEnded | DecisionEnded | Refused):
                self.count[event.request] = self.count.get(event.request, 0) + 1

    def token(self, request: str, index: int, at: int) -> None: ...

    def dropped(self, error: Exception) -> None:
        raise error


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("coresident")]


@asynccontextmanager
async def bench_open(bench: Bench):
    """A bench behind the asyncio door: ``(scheduler, desk)``."""
    async with aio.opened(bench.open, lambda thread, desk: (aio.Scheduler(thread, desk.scheduler), desk))() as both:
        yield both
    bench.check_closed()


async def drained(scheduler: aio.Scheduler) -> None:
    """Wait until what follows the requests' ends is through."""
    while (now := scheduler.statistics()).generation.open or now.device.waiting or now.device.state != "idle":
        await asyncio.sleep(0)
    assert (now.streams, now.device.ledger.accounts["workspace"].used) == (0, 0)


def test_a_thousand_requests_of_fifty_tasks_with_cancels_end_once_each():
    ends = Ends()
    told: list[str] = []

    async def client(scheduler: aio.Scheduler, number: int) -> None:
        chance = random.Random(number)
        for _ in range(20):
            prompt, tokens = LONG[: chance.randrange(5, 60)], chance.randrange(1, 6)
            if chance.random() < 0.25:
                work = scheduler.decide("Is it about the sea? ", [prompt])
            else:
                work = scheduler.generate(prompt, max_tokens=tokens, retain=chance.random() < 0.5).whole()
            task = asyncio.create_task(work)
            if chance.random() < 0.4:
                for _ in range(chance.randrange(8)):
                    await asyncio.sleep(0)
                task.cancel()
            try:
                told.append((await task).outcome)
            except asyncio.CancelledError:
                told.append("given up")

    async def main() -> None:
        bench = Bench(config(limits={"requests": 64, "decisions": 64}), [ends])
        async with bench_open(bench) as (scheduler, desk):
            await asyncio.gather(*(client(scheduler, number) for number in range(50)))
            await drained(scheduler)
            assert desk.runtime.host.listening == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert len(told) == 1000
    assert told.count("given up") > 100
    assert told.count("completed") > 500
    assert set(ends.count.values()) == {1}
    assert our_threads() == device_threads() == []


@pytest.mark.parametrize("moment", ["decode", "prefill"])
def test_R5_a_cancelled_task_stops_the_device_within_a_segment(moment):
    async def main() -> None:
        bench = Bench(SMALL)
        async with aio.opened(bench.open, lambda thread, desk: (thread, desk))() as (thread, desk):
            scheduler = aio.Scheduler(thread, desk.scheduler)
            held = thread.call(lambda: bench.backend.hold(moment))
            task = asyncio.create_task(scheduler.generate(LONG, max_tokens=200).whole())
            await asyncio.wrap_future(thread.submit(held.reached).future)
            before = bench.backend.segments[moment]
            task.cancel()
            while scheduler.statistics().device.state != "yielding":
                await asyncio.sleep(0)
            assert not task.done()
            held.release()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert bench.backend.segments[moment] == before
            await drained(scheduler)

    asyncio.run(main())


def test_a_wait_for_a_piece_that_is_cancelled_loses_none():
    async def main() -> None:
        async with aio.open_scheduler(SMALL) as scheduler:
            expected = (await scheduler.generate(PROMPT, max_tokens=12)).tokens
            async with scheduler.generate(PROMPT, max_tokens=12) as stream:
                got = []
                while len(got) < 12:
                    wait = asyncio.ensure_future(anext(stream))
                    await asyncio.sleep(0)
                    if not wait.done():
                        wait.cancel()
                    try:
                        got.append((await wait).token)
                    except asyncio.CancelledError:
                        continue
            assert tuple(got) == expected

    asyncio.run(main())


def test_context_variables_are_those_of_the_caller():
    name = contextvars.ContextVar("name", default="nobody")

    async def main() -> None:
        bench = Bench(SMALL)
        async with aio.opened(bench.open, lambda thread, desk: thread)() as thread:

            async def who() -> str:
                await trio.lowlevel.checkpoint()
                return name.get()

            async def caller(value: str) -> tuple[str, str]:
                name.set(value)
                there = await asyncio.wrap_future(thread.submit(who).future)
                return there, thread.call(name.get)

            got = await asyncio.gather(*(caller(value) for value in "abc"))
            assert got == [("a", "a"), ("b", "b"), ("c", "c")]

    asyncio.run(main())


def test_errors_come_out_whole_and_only_one_deep():
    async def main() -> None:
        async with aio.open_scheduler(SMALL) as scheduler:
            with pytest.raises(ContextExceeded) as refused:
                await scheduler.generate("x" * 600, max_tokens=2)
            assert refused.value.details["admitted"] == 512
            with pytest.raises(InvalidRequest, match="work_class is 'urgent'"):
                scheduler.generate("x", work_class="urgent")
            with pytest.raises(ZeroDivisionError):
                async with scheduler.generate(PROMPT, max_tokens=50):
                    raise ZeroDivisionError
            await drained(scheduler)
        with pytest.raises(Closed):
            await scheduler.decide("Yes?", ["a"])
        with pytest.raises(InvalidRequest, match=r"device\.backend is 'abacus'"):
            async with aio.open_scheduler(config(device={"backend": "abacus"})):
                raise AssertionError("never opened")

    asyncio.run(main())
    assert our_threads() == []


def test_a_defect_that_ends_the_host_comes_out_of_the_block(monkeypatch):
    def broken(message, at):
        raise LookupError("defect")

    async def main() -> None:
        bench = Bench(SMALL)
        async with aio.opened(bench.open, lambda thread, desk: aio.Scheduler(thread, desk.scheduler))() as scheduler:
            monkeypatch.setattr(bench.assembly.generation, "handle", broken)
            with pytest.raises(Closed):
                await scheduler.generate(PROMPT, max_tokens=3)
            with pytest.raises(Closed):
                await scheduler.decide("Yes?", ["a"])

    with pytest.raises(LookupError, match="defect"):
        asyncio.run(main())
    assert our_threads() == []


def test_giving_up_the_opening_ends_it():
    async def main() -> None:
        bench = Bench(SMALL)
        entered = threading.Event()

        @asynccontextmanager
        async def slow():
            async with bench.open() as desk:
                entered.set()
                await trio.sleep_forever()
                yield desk

        async def opening() -> None:
            async with aio.opened(slow, lambda thread, desk: desk)():
                raise AssertionError("never opened")

        task = asyncio.create_task(opening())
        await asyncio.to_thread(entered.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.check_closed()

    asyncio.run(main())
    assert our_threads() == []


def test_a_block_that_nobody_left_ends_with_its_loop():
    bench = Bench(SMALL)

    async def main() -> None:
        block = aio.opened(bench.open, lambda thread, desk: aio.Scheduler(thread, desk.scheduler))()
        scheduler = await block.__aenter__()
        stream = await scheduler.generate(PROMPT, max_tokens=400).__aenter__()
        await anext(stream)

    asyncio.run(main())
    gc.collect()
    bench.check_closed()
    assert our_threads() == []


def test_two_loops_may_use_one_scheduler():
    async def main() -> None:
        async with aio.open_scheduler(SMALL) as scheduler:
            expected = (await scheduler.generate(PROMPT, max_tokens=5)).tokens

            def elsewhere() -> tuple[int, ...]:
                return asyncio.run(scheduler.generate(PROMPT, max_tokens=5).whole()).tokens

            assert await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(3))) == [expected] * 3

    asyncio.run(main())


def test_under_uvloop():
    try:
        import uvloop
    except ImportError as error:
        require_or_skip("uvloop", f"pip install uvloop: {error}")

    async def main() -> str:
        async with aio.open_scheduler(SMALL) as scheduler:
            task = asyncio.create_task(scheduler.generate(PROMPT, max_tokens=400).whole())
            assert (await scheduler.decide("Yes?", ["a"])).outcome == "completed"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with scheduler.generate(PROMPT, max_tokens=5) as stream:
                return "".join([piece.text async for piece in stream])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main())


def test_E1_E3_engines_from_asyncio():
    async def main() -> None:
        registry = EngineRegistry()
        async with aio.open_engine(Config(), name="lazy") as lazy, aio.open_scheduler(Config()) as scheduler:
            registry.register("lazy", lazy)
            registry.register("open", scheduler.engine("open"))
            assert registry.get().id == "lazy"
            assert "preload" in lazy.capabilities
            assert registry.get("open").negotiate(["preload", "complete", "dance"]) == {"complete"}
            assert await lazy.preload("synthetic")
            one, other = [await engine.complete(Call(b"The sea", 6)) for engine in registry.snapshot().values()]
            assert (one.engine, other.engine) == ("lazy", "open")
            assert (one.tokens, one.input_tokens, one.output_tokens) == (other.tokens, 7, 6)
            assert (await lazy.view("again").complete(Call(b"The sea", 6))).engine == "again"

    asyncio.run(main())
