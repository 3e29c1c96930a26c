"""What the other front doors cost: asyncio and blocking against the Trio one, on a modelled device that takes no time.

Rounds alternate within one run; figures are CPU microseconds of the process a request and a streamed token, medians,
and ratios to the Trio front door. ``guest`` is the road not taken: Trio as a guest of the asyncio loop, one thread.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio
from common import arguments, prompt_tokens, report
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.backends.modelled import ModelledBackend
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import assemble
from coresident.runtime.host.live import open_live

from coresident import aio, blocking
from coresident.scheduler import Scheduler

REQUESTS, TOKENS, PROMPT = 200, 2000, prompt_tokens(16, 256)


@asynccontextmanager
async def open_modelled():
    """A live scheduler whose device computes nothing and takes no time."""
    config = structure({"device": {"backend": "modelled"}, "generation": {"context": 4096}})
    opened = open_backend(config)
    backend = ModelledBackend(heads=tuple(opened.heads))
    async with open_live(assemble(config, backend, opened.heads)) as runtime:
        yield Scheduler(runtime, opened.kits)


class Clock:
    """CPU time of the process between two looks."""

    def __init__(self) -> None:
        self._begin = time.process_time()

    def microseconds(self, count: int) -> float:
        return (time.process_time() - self._begin) * 1e6 / count


async def measure(generate: Callable) -> tuple[float, float]:
    """Microseconds a request and a streamed token, for a door whose methods are awaited."""
    clock = Clock()
    for _ in range(REQUESTS):
        await generate(PROMPT, max_tokens=1, retain=False)
    request = clock.microseconds(REQUESTS)
    clock = Clock()
    async with generate(PROMPT, max_tokens=TOKENS, retain=False, ignore_stop_tokens=True) as stream:
        async for _ in stream:
            pass
    return request, clock.microseconds(TOKENS)


async def under_trio() -> tuple[float, float]:
    async with open_modelled() as scheduler:
        return await measure(scheduler.generate)


async def under_asyncio() -> tuple[float, float]:
    async with aio.opened(open_modelled, aio.Scheduler)() as scheduler:
        return await measure(scheduler.generate)


def without_a_loop() -> tuple[float, float]:
    with blocking.opened(open_modelled, blocking.Scheduler)() as scheduler:
        clock = Clock()
        for _ in range(REQUESTS):
            scheduler.generate(PROMPT, max_tokens=1, retain=False).whole()
        request = clock.microseconds(REQUESTS)
        clock = Clock()
        with scheduler.generate(PROMPT, max_tokens=TOKENS, retain=False, ignore_stop_tokens=True) as stream:
            for _ in stream:
                pass
        return request, clock.microseconds(TOKENS)


async def as_a_guest() -> tuple[float, float]:
    """Each call is a Trio task, each piece one future of the asyncio loop that both share."""
    loop = asyncio.get_running_loop()
    done, ready = loop.create_future(), loop.create_future()

    async def serve() -> None:
        async with open_modelled() as scheduler, trio.open_nursery() as nursery:
            closing = trio.Event()
            ready.set_result((scheduler, nursery, trio.lowlevel.current_trio_token(), closing))
            await closing.wait()

    trio.lowlevel.start_guest_run(
        serve, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
    )
    scheduler, nursery, token, closing = await ready

    async def settle(future: asyncio.Future, function: Callable) -> None:
        try:
            future.set_result(await function())
        except StopAsyncIteration as end:
            future.set_exception(end)

    def call(function: Callable) -> asyncio.Future:
        future = loop.create_future()
        token.run_sync_soon(nursery.start_soon, settle, future, function)
        return future

    clock = Clock()
    for _ in range(REQUESTS):
        await call(scheduler.generate(PROMPT, max_tokens=1, retain=False).whole)
    request = clock.microseconds(REQUESTS)
    clock = Clock()
    stream = scheduler.generate(PROMPT, max_tokens=TOKENS, retain=False, ignore_stop_tokens=True)
    await call(stream.__aenter__)
    with suppress(StopAsyncIteration):
        while True:
            await call(stream.__anext__)
    await call(partial(stream.__aexit__, None, None, None))
    each = clock.microseconds(TOKENS)
    token.run_sync_soon(closing.set)
    (await done).unwrap()
    return request, each


DOORS = {
    "trio": lambda: trio.run(under_trio),
    "asyncio": lambda: asyncio.run(under_asyncio()),
    "blocking": without_a_loop,
    "guest": lambda: asyncio.run(as_a_guest()),
}


def main() -> None:
    options = arguments(__doc__, rounds=7)
    rounds: dict[str, list[tuple[float, float]]] = {door: [] for door in DOORS}
    for index in range(options.rounds + 1):
        for door, run in DOORS.items():
            figures = run()
            if index:
                rounds[door].append(figures)
    result = {}
    for place, what in enumerate(("request", "token")):
        medians = {door: statistics.median(one[place] for one in figures) for door, figures in rounds.items()}
        result[f"cpu_us_a_{what}"] = medians
        result[f"{what}_over_trio"] = {door: value / medians["trio"] for door, value in medians.items()}
    report("hosts", result, options.save)


if __name__ == "__main__":
    main()
