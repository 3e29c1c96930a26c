"""Vulkan in a worker process: the thread's numbers, no driver in the program, and a new worker for a killed one."""

from __future__ import annotations

import os
import signal

import pytest
from coresident.actors.errors import DeviceLost
from coresident.runtime.models.sampling import SamplingParams
from structlog.testing import capture_logs

from support.backends import needs
from support.live import LONG, desk, numbers_of, run
from support.workers import needs_proc, workers

pytestmark = needs_proc

LOGPROBS = SamplingParams(logprobs=3)
VULKAN = {"backend": "vulkan"}


async def numbers(scheduler):
    tokens = await numbers_of(scheduler.generate(LONG, max_tokens=6, sampling=LOGPROBS, retain=False))
    return tokens, (await scheduler.decide("Food?", ["bread", "a stone"])).scores


def test_R62_a_worker_gives_the_threads_numbers_and_a_killed_one_is_replaced(tmp_path):
    needs("vulkan")

    async def main():
        async with desk(device=VULKAN) as it:
            expected = await numbers(it.scheduler)
        async with workers(tmp_path, device=VULKAN | {"executor": "process"}) as it:
            assert await numbers(it.scheduler) == expected
            revision = it.scheduler.readiness().revision
            os.kill(it.pid, signal.SIGKILL)
            with pytest.raises(DeviceLost, match="SIGKILL"):
                await it.scheduler.generate(LONG, max_tokens=6)
            now = it.scheduler.readiness()
            assert (now.state, now.admitted_context) == ("faulted", 0)
            assert now.revision > revision
            it.check_empty()
            assert (await it.scheduler.repair()).ready
            assert await numbers(it.scheduler) == expected
            it.check_empty()

    with capture_logs():
        run(main, seconds=60)
