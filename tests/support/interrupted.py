"""A live scheduler whose chunks are suspended and cancelled: what must hold on every backend that computes."""

from __future__ import annotations

from typing import Any

import trio
from coresident.actors.effects import AskYield
from coresident.runtime.models.sampling import SamplingParams

from support.live import LONG, Heard, desk, numbers_of, run

INSTRUCTION, ROWS = "Answer yes or no: is the text about food? ", ("pizza with cheese", "a car engine", "bread")
HEADS = ("probability", "rank", "choice")
LOGPROBS = SamplingParams(logprobs=3)


def a_decision_goes_first(device: dict[str, Any], operation: str, segment: int, skip: int) -> None:
    """A whole decision runs before the rest of what ``operation`` began, and nobody's numbers tell."""

    async def main():
        async with desk(device=device) as alone:
            expected = await numbers_of(alone.scheduler.generate(LONG, max_tokens=8, sampling=LOGPROBS))
            scores = (await alone.scheduler.decide(INSTRUCTION, ROWS, heads=HEADS)).scores
        asked = Heard(AskYield)
        async with desk([asked], device=device) as it:
            held = it.backend.hold(operation, segment, skip)
            answers, got = [], []

            async def generate():
                got.extend(await numbers_of(it.scheduler.generate(LONG, max_tokens=8, sampling=LOGPROBS)))

            async def decide():
                answers.append(await it.scheduler.decide(INSTRUCTION, ROWS, heads=HEADS))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(generate)
                await held.reached()
                nursery.start_soon(decide)
                await asked.event.wait()
                held.release()
            assert got == expected
            assert answers[0].scores == scores
            assert it.scheduler.statistics().device.suspensions == (operation == "prefill")
            assert it.scheduler.statistics().device.exceeded == 0
            await it.settled()

    run(main)


def a_cancelled_chunk_is_forgotten(device: dict[str, Any]) -> None:
    """It ends with its segment, and the next request has its numbers."""

    async def main():
        asked = Heard(AskYield)
        async with desk([asked], device=device, generation={"retained": 0}) as it:
            expected = await numbers_of(it.scheduler.generate(LONG, max_tokens=4, sampling=LOGPROBS))
            held = it.backend.hold("prefill", 2, 1)
            async with it.scheduler.generate(LONG[::-1], max_tokens=4) as cancelled:
                await held.reached()
                before = it.backend.segments["prefill"]
                cancelled.cancel()
                await asked.event.wait()
                held.release()
            assert it.backend.segments["prefill"] == before
            assert (await cancelled.result()).outcome == "cancelled"
            assert await numbers_of(it.scheduler.generate(LONG, max_tokens=4, sampling=LOGPROBS)) == expected
            await it.settled()

    run(main)
