"""A worker process asked for by configuration, through each front door, and interrupted from a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import attrs
import pytest
import trio

import coresident
from coresident import aio, blocking
from support.live import config, device_threads
from support.workers import SCRIPT, needs_proc, pids_in, state_of

pytestmark = needs_proc

PROMPT = "The sea is wide"
SETTINGS = config(device={"executor": "process"})
THREAD = attrs.evolve(SETTINGS, device=attrs.evolve(SETTINGS.device, executor="thread"))


def under_trio(settings):
    async def main():
        async with coresident.open_scheduler(settings) as scheduler:
            return (await scheduler.generate(PROMPT, max_tokens=4)).tokens, scheduler.statistics().executor

    return trio.run(main)


def under_asyncio(settings):
    async def main():
        async with aio.open_scheduler(settings) as scheduler:
            return (await scheduler.generate(PROMPT, max_tokens=4)).tokens, scheduler.statistics().executor

    return asyncio.run(main())


def without_a_loop(settings):
    with blocking.open_scheduler(settings) as scheduler:
        return scheduler.generate(PROMPT, max_tokens=4).whole().tokens, scheduler.statistics().executor


@pytest.mark.parametrize("door", [under_trio, under_asyncio, without_a_loop])
def test_R62_the_configuration_chooses_the_executor_for_every_front_door(door):
    expected, thread = door(THREAD)
    tokens, process = door(SETTINGS)
    assert tokens == expected
    assert (thread.kind, thread.pid) == ("thread", os.getpid())
    assert (process.kind, process.alive, process.starts) == ("process", True, 1)
    assert state_of(process.pid) == ""
    assert device_threads() == []


def test_an_interrupt_of_the_whole_process_group_ends_the_program_and_its_worker(tmp_path):
    program = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(SCRIPT.parents[1])!r})
        from pathlib import Path
        import trio
        from support.workers import workers

        async def main():
            async with workers(Path({str(tmp_path)!r})) as it:
                async with it.scheduler.generate("The sea", max_tokens=400) as stream:
                    async for piece in stream:
                        if piece.token is not None:
                            print("ready", flush=True)
                            break
                    await trio.sleep_forever()

        trio.run(main)
        """
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        while (line := process.stdout.readline().strip()) != b"ready":
            assert line or process.poll() is None, process.stderr.read()
        (worker,) = pids_in(tmp_path)
        assert os.getpgid(worker) == process.pid
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert said.rstrip().endswith(b"KeyboardInterrupt")
        assert state_of(worker) == ""
