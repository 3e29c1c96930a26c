"""The worker killed in every way at every moment: typed outcomes, nothing left charged, and a way back.

Each way goes through all moments on one scheduler, since starting a worker is what costs time here. In a start it dies
behind another death, in the repair of that.
"""

from __future__ import annotations

import re

import pytest
import trio
from coresident.actors.errors import DeviceLost
from structlog.testing import capture_logs

from support.live import desk, run
from support.workers import needs_proc, workers

pytestmark = needs_proc

PROMPT = "The sea is wide and the wind is"
ACTS = ("kill", "stop", "close", "garbage", "oversize")
MOMENTS = ("prefill", "decode", "score", "copy", "save", "restore")
STARTING = {"copy": "load", "save": "warm"}
# Moving so little has no segment but its last, which nobody needs to yield: the worker dies before it.
WHOLE = ("copy", "save", "restore")
# What a typed outcome says of each way to die.
SAID = {
    "kill": r"the worker process \d+ ended \(SIGKILL\)",
    "stop": r"has not ended after .* s, the bound is .* the device hangs; the worker process \d+ was killed for it",
    "close": r"it closed its output; the worker process \d+ was killed for it \(SIGKILL\)",
    "garbage": r"a frame of 8 bytes is not JSON",
    "oversize": r"a frame announces 4294967295 bytes, the limit is 16777216",
    "cut": r"the pipe ended inside a frame, of which 11 bytes had come; the worker process \d+ ended \(exit code 9\)",
    "exit": r"ended \(exit code 7\); a retry or a repair starts another one; it last said: the end is near",
}


@pytest.fixture(scope="module")
def reference():
    """What the thread executor answers."""

    async def main():
        async with desk() as it:
            tokens = (await it.scheduler.generate(PROMPT, max_tokens=8, retain=False)).tokens
            return tokens, (await it.scheduler.decide("Food?", ["a", "b"])).scores

    return run(main)


async def _use(it):
    """Every kind of step of a request that a worker can die in."""
    await it.scheduler.generate(PROMPT, max_tokens=4)
    await it.scheduler.generate("Z", max_tokens=2)
    await it.scheduler.generate(PROMPT + "!", max_tokens=4)
    decision = await it.scheduler.decide("Drink?", ["a", "b", "c"])
    if decision.outcome != "completed":
        assert (decision.outcome, decision.reason) == ("abstained", "unavailable")
        raise it.scheduler.readiness().error


async def _break(it, moment, act):
    """Let the armed worker break; the error that says so, as the client gets it or as readiness says."""
    if moment in STARTING.values():
        it.arm(moment, act)
        with pytest.raises(DeviceLost) as caught:
            await it.scheduler.repair()
        return caught.value
    it.arm(moment, act, segment=moment not in WHOLE)
    try:
        await _use(it)
    except DeviceLost as error:
        return error
    # What is saved is saved after its answer, which nobody takes back.
    await it.faulted()
    return it.scheduler.readiness().error


async def _die(it, moment, act):
    """Break, and look at what is left."""
    revision = it.scheduler.readiness().revision
    async with trio.open_nursery() as nursery:
        if act == "stop":
            nursery.start_soon(it.overdue_when_stopped)
        error = await _break(it, moment, act)
    assert not it.armed, moment
    assert isinstance(error, DeviceLost), moment
    assert re.search(SAID[act], error.message), (moment, error.message)
    now = it.scheduler.readiness()
    assert (now.state, now.actions) == ("faulted", ("retry", "repair")), moment
    assert now.revision > revision
    it.check_empty()
    assert it.living() == []


@pytest.mark.parametrize("act", ACTS)
def test_R6_R45_FIELD_20_FIELD_63_the_worker_dies_at_any_moment(act, tmp_path, reference):
    async def main():
        async with workers(tmp_path, generation={"sequences": 1}) as it:
            for moment in MOMENTS:
                await _die(it, moment, act)
                if moment in STARTING:
                    await _die(it, STARTING[moment], act)
                assert (await it.scheduler.repair()).ready
                assert (await it.scheduler.generate(PROMPT, max_tokens=8, retain=False)).tokens == reference[0], moment
                assert (await it.scheduler.decide("Food?", ["a", "b"])).scores == reference[1], moment

    with capture_logs():
        run(main, seconds=40)


@pytest.mark.parametrize("act", ["cut", "exit"])
def test_what_the_worker_last_said_is_in_the_error(act, tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            it.arm("prefill", act)
            with pytest.raises(DeviceLost, match=SAID[act]) as caught:
                await it.scheduler.generate(PROMPT, max_tokens=4)
            assert caught.value.details["exit"] == {"cut": 9, "exit": 7}[act]
            it.check_empty()

    with capture_logs() as logs:
        run(main)
    assert "worker.lost" in [entry["event"] for entry in logs]


@pytest.mark.parametrize("act", ACTS)
def test_R77_a_worker_that_breaks_while_closing_is_reaped(act, tmp_path):
    async def main():
        async with workers(tmp_path, grace=0.3) as it:
            await it.scheduler.generate(PROMPT, max_tokens=2)
            it.arm("unload", act, 0)
            folder = it.folder
        assert not (folder / "fault.json").exists()

    with capture_logs():
        run(main)
