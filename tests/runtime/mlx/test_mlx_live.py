"""The live host on MLX: a decision goes before a suspended chunk, a cancel costs a segment; numbers don't change."""

from __future__ import annotations

import pytest
from coresident.actors.events import ChargeExceeded

from support.interrupted import a_cancelled_chunk_is_forgotten, a_decision_goes_first
from support.live import LONG, desk, run
from support.mlx_models import needs_mlx

needs_mlx()

MLX = {"backend": "mlx"}


@pytest.mark.parametrize(("operation", "segment", "skip"), [("prefill", 2, 3), ("decode", 1, 2)])
def test_R10_a_whole_decision_goes_first_and_nobody_can_tell(operation, segment, skip):
    a_decision_goes_first(MLX, operation, segment, skip)


def test_R5_a_cancelled_chunk_leaves_the_next_request_its_numbers():
    a_cancelled_chunk_is_forgotten(MLX)


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
