"""An error that is kept and answers many requests is raised as a new object each time."""

from __future__ import annotations

import traceback

import pytest
from coresident.actors.errors import DeviceLost

from support.live import LONG, desk, run

pytestmark = pytest.mark.usefixtures("front_door")


def depth(error: BaseException | None) -> int:
    assert error is not None
    return len(traceback.extract_tb(error.__traceback__))


def test_refusals_while_faulted_pin_no_frames():
    """A kept exception that is raised again and again would collect a traceback, and every request in it."""

    async def main():
        async with desk() as it:
            it.backend.fail("prefill", DeviceLost("gone"))
            raised, kept = [], []
            for _ in range(20):
                with pytest.raises(DeviceLost) as caught:
                    await it.scheduler.generate(LONG, max_tokens=1)
                raised.append(depth(caught.value))
                kept.append(depth(it.scheduler.readiness().error))
            assert raised[1:] == raised[1:2] * 19
            assert kept == kept[:1] * 20
            await it.scheduler.retry()
            await it.scheduler.generate(LONG, max_tokens=1)

    run(main)
