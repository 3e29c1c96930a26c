"""Cancellation and interrupts at every checkpoint: whatever the moment, everything ends and everything is returned.

A task is cancelled before its n-th step (it finds out at its next checkpoint) or while it is parked after it, for every
n until it comes through untouched.
"""

from __future__ import annotations

import signal
from itertools import count

import pytest
import trio
from coresident.actors.errors import DeviceLost
from coresident.runtime.models.sampling import SamplingParams

from support.cancelling import CancelAt, cancelled_at
from support.live import LONG, Bench, config, desk, device_threads, run

PROMPT = LONG[:70]
INSTRUCTION = "Answer yes or no: is the text about food? "
LOGPROBS = SamplingParams(logprobs=2)


def small():
    return config(generation={"reuse": "grid", "context": 128, "retained": "1 MiB"}, decision={"context": 192})


async def answer_of(scheduler):
    async with scheduler.generate(PROMPT, max_tokens=4, sampling=LOGPROBS) as stream:
        return [(piece.token, piece.logprob, piece.top) async for piece in stream]


async def everything(bench: Bench) -> None:
    async with bench.open() as it:
        async with it.scheduler.generate(PROMPT, max_tokens=4) as stream:
            await anext(stream)
            await it.scheduler.decide(INSTRUCTION, ["a", "b", "c"])
            async for _ in stream:
                pass
        await it.scheduler.generate(PROMPT + "!", max_tokens=2)


@pytest.mark.parametrize("when", ["before", "after"])
def test_R5_cancelling_everything_at_every_checkpoint(when):
    async def main():
        for n in count(1):
            bench = Bench(small())
            acted = await cancelled_at(n, when, lambda bench=bench: everything(bench))
            if bench.assembly.supervisor.readiness().state != "new":
                bench.check_closed()
            assert device_threads() == []
            if not acted:
                return n
        raise AssertionError

    assert run(main, 60) > 8


STEPS = {"stream": 12, "one call": 2, "decide": 2, "leave early": 2}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["stream", "one call", "decide", "leave early"])
def test_R5_cancelling_one_client_at_every_checkpoint_of_a_living_scheduler(call, when):
    async def main():
        async with desk(generation={"reuse": "grid"}) as it:
            expected = await answer_of(it.scheduler)
            decided = (await it.scheduler.decide(INSTRUCTION, ["a", "b", "c"])).scores

            async def client():
                if call == "decide":
                    await it.scheduler.decide(INSTRUCTION + str(n), ["a", "b", "c"])
                elif call == "one call":
                    await it.scheduler.generate(str(n) + PROMPT, max_tokens=12)
                else:
                    async with it.scheduler.generate(str(n) + PROMPT, max_tokens=12) as stream:
                        async for _ in stream:
                            if call == "leave early":
                                break
                            await trio.lowlevel.checkpoint()

            for n in count(1):
                acted = await cancelled_at(n, when, client)
                assert it.runtime.host.listening == 0
                assert len(it.runtime.host.streams) == 0
                assert await answer_of(it.scheduler) == expected
                assert (await it.scheduler.decide(INSTRUCTION, ["a", "b", "c"])).scores == decided
                await it.settled()
                if not acted:
                    return n
        raise AssertionError

    assert run(main, 60) >= STEPS[call]


@pytest.mark.parametrize("when", ["before", "after"])
def test_R5_cancelling_a_recovery_at_every_checkpoint(when):
    async def main():
        async with desk() as it:
            expected = (await it.scheduler.generate(PROMPT, max_tokens=4)).tokens
            for n in count(1):
                it.backend.fail("prefill", DeviceLost("unplugged"))
                with pytest.raises(DeviceLost):
                    await it.scheduler.generate("x" + PROMPT, max_tokens=2)
                acted = await cancelled_at(n, when, it.scheduler.repair)
                while not it.scheduler.readiness().ready:
                    await trio.lowlevel.checkpoint()
                assert (await it.scheduler.generate(PROMPT, max_tokens=4)).tokens == expected
                await it.settled()
                if not acted:
                    return n
        raise AssertionError

    assert run(main, 60) > 1


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 21])
def test_an_interrupt_in_the_middle_closes_everything(n):
    """SIGINT reaches the main task, never the middle of a delivery between actors."""
    bench = Bench(small())

    async def main():
        instrument = CancelAt(n, "before", lambda: signal.raise_signal(signal.SIGINT))
        trio.lowlevel.add_instrument(instrument)
        await everything(bench)
        signal.raise_signal(signal.SIGINT)
        await trio.lowlevel.checkpoint()

    with pytest.raises(KeyboardInterrupt):
        run(main)
    bench.check_closed()


def test_an_interrupt_inside_a_delivery_waits_for_its_end():
    class Interrupting:
        """Raises the signal while an actor's effects are about to be carried out."""

        def __init__(self) -> None:
            self.left = 25

        def delivered(self, delivery) -> None:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)

        def token(self, request: str, index: int, at: int) -> None: ...

        def dropped(self, error: Exception) -> None: ...

    bench = Bench(small(), [Interrupting()])
    with pytest.raises(KeyboardInterrupt):
        run(lambda: everything(bench))
    bench.check_closed()
