"""How long a decision takes: on an idle device, beside a streaming answer, and inside a long prefill; ``strict``
against ``fifo``.

A decision is two rows under an instruction that stays warm. Figures are seconds by the scheduler's clock, and ratios
to idle.
"""

from __future__ import annotations

from functools import partial

import trio
from common import arguments, config, percentiles, prompt_tokens, report, text_of

from coresident import open_scheduler

INSTRUCTION = "Answer yes or no. Is this message urgent for the person who reads it? " + text_of(150)
ROWS = (text_of(30), text_of(32))


async def decide(scheduler) -> float:
    """One decision; seconds."""
    result = await scheduler.decide(INSTRUCTION, ROWS)
    return result.total_ns / 1e9


async def idle(scheduler, count: int) -> list[float]:
    await decide(scheduler)
    return [await decide(scheduler) for _ in range(count)]


async def beside(scheduler, tokens: list[int], max_tokens: int, count: int, every: float) -> tuple[list[float], float]:
    """Decisions at intervals while one generation runs; their seconds, and the generation's total."""
    seconds: list[float] = []

    async def one() -> None:
        seconds.append(await decide(scheduler))

    async with scheduler.generate(tokens, max_tokens=max_tokens, ignore_stop_tokens=True, retain=False) as stream:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                await trio.sleep(every)
                nursery.start_soon(one)
        result = await stream.result()
    return seconds, result.total_ns / 1e9


async def scenario(options, ordering: str) -> dict[str, object]:
    """All three situations under one ordering policy."""
    async with open_scheduler(config(options.model, ordering)) as scheduler:
        vocabulary = 40_000 if options.model != "synthetic" else 256
        make = partial(prompt_tokens, vocabulary=vocabulary)
        alone = await idle(scheduler, options.count)
        solo = await scheduler.generate(make(1500, seed=1), max_tokens=128, ignore_stop_tokens=True, retain=False)
        streaming, total = await beside(scheduler, make(1500, seed=2), 128, options.count, 1.5)
        prefill, _ = await beside(scheduler, make(options.prefill, seed=3), 1, options.count, 0.5)
        device = scheduler.statistics().device
    medians = percentiles(alone)["p50"]
    return {
        "idle_s": percentiles(alone),
        "under_stream_s": percentiles(streaming),
        "under_prefill_s": percentiles(prefill),
        "under_stream_over_idle_p50": percentiles(streaming)["p50"] / medians,
        "under_prefill_over_idle_p50": percentiles(prefill)["p50"] / medians,
        "stream_total_over_alone": total / (solo.total_ns / 1e9),
        "longest_segment_ms": device.longest_segment_ns / 1e6,
        "suspensions": device.suspensions,
    }


async def main() -> None:
    options = arguments(__doc__, prefill=6000, count=10)
    figures = {ordering: await scenario(options, ordering) for ordering in ("strict", "fifo")}
    report("latency", figures, options.save)


if __name__ == "__main__":
    trio.run(main)
