"""Warming up stays within what it is charged, whatever the plan, and so does the host's own warm-up."""

from __future__ import annotations

import pytest
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import PlanRequest

from support.backends import opened_on
from support.live import desk, run
from support.reference import HEADS, MODEL, drain

pytestmark = pytest.mark.usefixtures("vulkan")

NAMES = tuple(head.name for head in HEADS)


@pytest.mark.parametrize(
    ("context", "chunk", "slots", "decision_context"),
    [(768, 256, 1, 0), (300, 100, 9, 40), (1000, 257, 2, 1300), (40, 64, 8, 30), (7, 1, 5, 3)],
)
def test_R9_warming_takes_no_more_than_it_is_charged(context, chunk, slots, decision_context):
    rows = 2 if decision_context else 0
    request = PlanRequest(context, slots, chunk, rows, decision_context, rows, NAMES)
    backend = opened_on("vulkan", request=request)
    charge = backend.charge(MODEL, StepShape(StepKind.WARMUP, 1, chunk, max(context, decision_context)))
    space = backend.open_workspace(charge)
    drain(backend.warm(MODEL, space))
    assert 0 < space.peak() <= charge


@pytest.mark.parametrize(("slots", "chunk"), [(1, 1), (4, 1), (8, 8), (9, 16)])
def test_R9_a_host_charges_a_warm_up_for_steps_of_all_its_slots(slots, chunk):
    """Rows of logits of many slots take more than a short chunk does."""

    async def main():
        async with desk(device={"backend": "vulkan"}, generation={"sequences": slots, "chunk": chunk}) as it:
            assert it.scheduler.readiness().state == "ready"
            await it.settled()

    run(main)
