"""The live host on MLX: a decision goes before a suspended chunk, a cancel costs a segment; numbers don't change."""

from __future__ import annotations

import pytest
import trio
from coresident.actors.effects import AskYield
from coresident.actors.events import ChargeExceeded
from coresident.runtime.models.sampling import SamplingParams

from support.live import LONG, Heard, desk, numbers_of, run
from support.mlx_models import needs_mlx

needs_mlx()

INSTRUCTION, ROWS = "Answer yes or no: is the text about food? ", ("pizza with cheese", "a car engine", "bread")
HEADS = ("probability", "rank", "choice")
LOGPROBS = SamplingParams(logprobs=3)
MLX = {"backend": "mlx"}


@pytest.mark.parametrize(("operation", "segment", "skip"), [("prefill", 2, 3), ("decode", 1, 2)])
def test_R10_a_whole_decision_goes_first_and_nobody_can_tell(operation, segment, skip):
    async def main():
        async with desk(device=MLX) as alone:
            expected = await numbers_of(alone.scheduler.generate(LONG, max_tokens=8, sampling=LOGPROBS))
            scores = (await alone.scheduler.decide(INSTRUCTION, ROWS, heads=HEADS)).scores
        asked = Heard(AskYield)
        async with desk([asked], device=MLX) as it:
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


def test_R5_a_cancelled_chunk_leaves_the_next_request_its_numbers():
    async def main():
        asked = Heard(AskYield)
        async with desk([asked], device=MLX, generation={"retained": 0}) as it:
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


def test_R9_a_step_that_takes_more_than_its_charge_is_reported(monkeypatch):
    """An envelope that is too small for the model: nothing knows before it was measured."""
    monkeypatch.setattr("coresident.runtime.backends.mlx.limits.layer_need", lambda sizes, tokens, context: 0)

    async def main():
        breaches = []

        class Watch:
            def delivered(self, delivery):
                breaches.extend(event for event in delivery.events() if isinstance(event, ChargeExceeded))

            def token(self, request, index, at): ...

            def dropped(self, error): ...

        async with desk([Watch()], device=MLX, generation={"chunk": 64}) as it:
            assert (await it.scheduler.generate(LONG, max_tokens=2)).outcome == "completed"
            await it.settled()
            assert it.scheduler.statistics().device.exceeded == len(breaches) > 0
            assert all(breach.measured > breach.charge for breach in breaches)

    run(main)
