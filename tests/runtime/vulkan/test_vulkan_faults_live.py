"""The live host when Vulkan breaks: typed errors, true readiness, nothing left charged, and the same numbers after it.

Each way to break goes through all moments on one scheduler. In a start it breaks behind another loss, in its repair.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import cycle

import pytest
import trio
from coresident.actors.errors import BackendFault, BudgetExceeded, CoresidentError, DeviceLost, InvalidRequest
from coresident.runtime.backends.vulkan.library import open_functions
from coresident.runtime.backends.vulkan.results import Result
from coresident.runtime.models.sampling import SamplingParams

from support.backends import needs
from support.live import LONG, Bench, config, desk, numbers_of, run
from support.vulkan_fakes import Watched

VULKAN = {"backend": "vulkan"}
PROMPT = "The sea is wide and the wind is"
LOGPROBS = SamplingParams(logprobs=3)
STARTING = ("load", "warm")
MOMENTS = {
    "wait": (*STARTING, "prefill", "decode", "score", "copy", "save", "restore"),
    "submit": ("load", "prefill", "score", "save"),
    "hang": ("warm", "decode", "copy", "restore"),
}
LOSSES = {
    "submit": ("vkQueueSubmit", Result.ERROR_DEVICE_LOST, False),
    "wait": ("vkWaitForFences", Result.ERROR_DEVICE_LOST, False),
    "hang": ("vkWaitForFences", Result.TIMEOUT, True),
}
SAID = {
    "submit": "vkQueueSubmit.* returned VK_ERROR_DEVICE_LOST",
    "wait": "vkWaitForFences.* returned VK_ERROR_DEVICE_LOST",
    "hang": "timed out",
}


@pytest.fixture
def raw(monkeypatch) -> Iterator[Watched]:
    """The functions that every backend of a configuration runs on; at the end nothing that they made is left."""
    needs("vulkan")
    watched = Watched(open_functions())
    monkeypatch.setattr("coresident.runtime.backends.vulkan.configured.open_functions", lambda: watched.functions)
    yield watched
    gc.collect()
    assert watched.left() == []


async def numbers(it):
    """What must be equal before and after, to the bit."""
    tokens = await numbers_of(it.scheduler.generate(PROMPT, max_tokens=4, sampling=LOGPROBS, retain=False))
    return tokens, (await it.scheduler.decide("Food?", ["a", "b"])).scores


async def use(it) -> CoresidentError | None:
    """Every kind of step of a request that a device can break in; the error, as clients get it or readiness says."""
    try:
        await it.scheduler.generate(PROMPT, max_tokens=4)
        await it.scheduler.generate("Z", max_tokens=2)
        await it.scheduler.generate(PROMPT + "!", max_tokens=4)
        await it.scheduler.decide("Drink?", ["a", "b", "c"])
        while it.scheduler.readiness().ready and not it.idle():
            await trio.lowlevel.checkpoint()
    except CoresidentError as error:
        return error
    return it.scheduler.readiness().error


async def repaired(it) -> CoresidentError | None:
    """Lose the device, and break in the repair."""
    it.backend.fail("prefill", DeviceLost("unplugged"))
    with pytest.raises(DeviceLost, match="unplugged"):
        await it.scheduler.generate(PROMPT, max_tokens=2)
    try:
        await it.scheduler.repair()
    except CoresidentError as error:
        return error
    return None


def check_nothing_charged(it) -> None:
    now = it.scheduler.statistics()
    assert (now.generation.open, now.decision.open, now.device.waiting, now.streams) == (0, 0, 0, 0)
    assert now.device.ledger.accounts["workspace"].used == 0
    assert it.backend.open_workspaces == 0


async def broken(it, raw, moment, fault) -> CoresidentError | None:
    """What comes of a raw function that fails from the beginning of the next such step on, as ``fault`` says."""
    held, errors = it.backend.hold(moment, segment=0), []

    async def client():
        errors.append(await (repaired if moment in STARTING else use)(it))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client)
        await held.reached()
        raw.fail(fault[0], fault[1], on=fault[2])
        held.release()
    raw.fault = None
    return errors[0]


@pytest.mark.parametrize("way", LOSSES)
def test_R6_FIELD_63_a_device_lost_at_any_moment_is_said_and_repaired(raw, way):
    async def main():
        async with desk(device=VULKAN, generation={"sequences": 1}) as it:
            expected = await numbers(it)
            for moment, action in zip(MOMENTS[way], cycle(("repair", "retry"))):
                revision = it.scheduler.readiness().revision
                error = await broken(it, raw, moment, LOSSES[way])
                assert type(error) is DeviceLost, (moment, error)
                with pytest.raises(DeviceLost, match=SAID[way]):
                    raise error
                now = it.scheduler.readiness()
                assert (now.state, now.admitted_context, now.actions) == ("faulted", 0, ("retry", "repair")), moment
                assert now.revision > revision
                check_nothing_charged(it)
                assert (await getattr(it.scheduler, action)()).ready
                assert it.scheduler.statistics().device.ledger.accounts["retained/generation"].used == 0
                assert await numbers(it) == expected, moment
                await it.settled()

    run(main, seconds=60)


@pytest.mark.parametrize("decision", [{}, {"model": "synthetic"}], ids=["one model", "two models"])
def test_R6_a_lost_device_recovers_by_itself_and_clients_get_the_same_numbers(raw, decision):
    async def main():
        sections = {"generation": {"retained": 0}, "decision": decision, "limits": {"restarts": 1}}
        async with desk(device=VULKAN, **sections) as it:
            scores = (await it.scheduler.decide("Food?", ["a", "b"])).scores
            expected = await numbers_of(it.scheduler.generate(LONG, max_tokens=4, sampling=LOGPROBS))
            held = it.backend.hold("prefill", segment=0, skip=2)
            again = []

            async def client():
                again.append(await numbers_of(it.scheduler.generate(LONG, max_tokens=4, sampling=LOGPROBS)))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(client)
                await held.reached()
                raw.fail("vkWaitForFences", Result.ERROR_DEVICE_LOST)
                held.release()
            assert again == [expected]
            assert (await it.scheduler.decide("Food?", ["a", "b"])).scores == scores
            assert raw.count("vkCreateDevice") == 2
            assert it.scheduler.readiness().ready
            await it.settled()

    run(main)


@pytest.mark.parametrize(
    ("function", "result", "kind"),
    [
        ("vkCreateDevice", Result.ERROR_INITIALIZATION_FAILED, BackendFault),
        ("vkCreateInstance", Result.ERROR_INCOMPATIBLE_DRIVER, InvalidRequest),
    ],
)
def test_R6_a_device_that_does_not_come_back_at_once_is_repaired_later(raw, function, result, kind):
    async def main():
        async with desk(device=VULKAN) as it:
            expected = await numbers(it)
            raw.fail("vkWaitForFences", Result.ERROR_DEVICE_LOST)
            with pytest.raises(DeviceLost):
                await it.scheduler.generate(PROMPT, max_tokens=2)
            raw.fail(function, result, on=True)
            for _ in range(2):
                with pytest.raises(kind):
                    await it.scheduler.repair()
                assert it.scheduler.readiness().state == "faulted"
                with pytest.raises(kind):
                    await it.scheduler.generate(PROMPT, max_tokens=2)
            raw.fault = None
            assert (await it.scheduler.repair()).ready
            assert await numbers(it) == expected
            await it.settled()

    run(main)


MEMORY = {
    "a submit": ("vkQueueSubmit", Result.ERROR_OUT_OF_DEVICE_MEMORY, False),
    "a recording": ("vkAllocateCommandBuffers", Result.ERROR_OUT_OF_HOST_MEMORY, False),
}


@pytest.mark.parametrize("what", MEMORY)
def test_R9_a_driver_without_memory_fails_one_step_and_no_device(raw, what):
    async def main():
        async with desk(device=VULKAN, generation={"sequences": 1, "chunk": 24}) as it:
            expected = await numbers(it)
            for moment in ("prefill", "copy", "restore"):
                error = await broken(it, raw, moment, MEMORY[what])
                assert type(error) is BackendFault, (moment, error)
                with pytest.raises(BackendFault, match=f"{MEMORY[what][0]}.*VK_ERROR_OUT_OF_.*_MEMORY"):
                    raise error
                assert it.scheduler.readiness().ready
                await it.settled()
                assert await numbers(it) == expected, moment
            assert raw.count("vkCreateDevice") == 1

    run(main)


def test_R9_a_driver_without_memory_for_a_steps_own_fails_that_step_and_no_device(raw):
    """A context of another power of two takes memory that no step before it had."""

    async def main():
        async with desk(device=VULKAN) as it:
            expected = await numbers(it)
            raw.fail("vkAllocateMemory", Result.ERROR_OUT_OF_DEVICE_MEMORY, on=True)
            with pytest.raises(BudgetExceeded):
                await it.scheduler.generate(2 * LONG, max_tokens=2)
            raw.fault = None
            assert it.scheduler.readiness().ready
            await it.settled()
            assert await numbers(it) == expected
            assert (await it.scheduler.generate(2 * LONG, max_tokens=2)).outcome == "completed"
            await it.settled()

    run(main)


def test_R9_a_driver_without_memory_for_a_load_is_said_and_a_repair_comes_later(raw):
    async def main():
        async with desk(device=VULKAN) as it:
            expected = await numbers(it)
            no_memory = ("vkAllocateMemory", Result.ERROR_OUT_OF_DEVICE_MEMORY, False)
            error = await broken(it, raw, "load", no_memory)
            assert isinstance(error, BudgetExceeded)
            assert it.scheduler.readiness().state == "faulted"
            assert (await it.scheduler.repair()).ready
            assert await numbers(it) == expected
            await it.settled()

    run(main)


@pytest.mark.parametrize(
    ("function", "result", "kind"),
    [
        ("vkAllocateMemory", Result.ERROR_OUT_OF_DEVICE_MEMORY, BudgetExceeded),
        ("vkQueueSubmit", Result.ERROR_DEVICE_LOST, DeviceLost),
        ("vkCreateComputePipelines", Result.ERROR_OUT_OF_HOST_MEMORY, BackendFault),
    ],
)
def test_a_start_that_fails_is_raised_by_opening_and_leaves_nothing(raw, function, result, kind):
    async def main():
        bench = Bench(config(device=VULKAN))
        raw.fail(function, result)
        with pytest.raises(kind) as caught:
            async with bench.open():
                raise AssertionError("opened")
        assert type(caught.value) is kind
        bench.check_closed()

    run(main)
