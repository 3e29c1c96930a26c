"""Whoever is admitted can run: the workspace covers the largest steps that admitted requests lead to."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BudgetExceeded
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.host.admission import admit, largest_steps

from support.live import config, desk, run

CONTEXT = 1024


def sized(workspace: int):
    return config(device={"workspace": workspace}, generation={"context": CONTEXT})


def largest():
    opened = open_backend(sized(8 << 20))
    return max(largest_steps(sized(8 << 20), opened.backend, CONTEXT, tuple(opened.heads)), key=lambda s: s.charge)


def test_a_workspace_short_of_the_largest_step_is_refused_at_opening_with_the_numbers():
    step = largest()
    given = sized(step.charge - 1)
    opened = open_backend(given)
    with pytest.raises(BudgetExceeded) as caught:
        admit(given, opened.backend, tuple(opened.heads))
    for words in (step.shape.kind.value, str(step.charge), str(step.charge - 1), "device.workspace"):
        assert words in str(caught.value)


def test_with_exactly_the_largest_step_a_prompt_of_the_whole_context_runs():
    workspace = largest().charge

    async def main():
        async with desk(device={"workspace": workspace}, generation={"context": CONTEXT}) as it:
            result = await it.scheduler.generate("x" * (CONTEXT - 1), max_tokens=1)
            assert (result.outcome, result.prompt_tokens) == ("completed", CONTEXT - 1)
            await it.scheduler.decide("Food? ", ["a" * 200, "b"])

    run(main)
