"""The live host refuses with the numbers, and fails what is open at its end; nobody else notices."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest
import trio
import trio.testing
from coresident.actors.errors import Closed, ContextExceeded, InvalidRequest, Overloaded
from coresident.actors.messages import SubmitDecision
from coresident.runtime.models.chat import ChatTemplate

from coresident.scheduler import Scheduler
from support.live import LONG, desk, numbers_of, run

pytestmark = pytest.mark.usefixtures("front_door")

PROMPT = "The sea is wide and the wind is"


def test_R4_the_rendered_prompt_and_the_output_fit_to_the_token():
    async def main():
        async with desk() as it:
            measured = it.scheduler.measure(LONG)
            assert (measured.prompt_tokens, measured.admitted_context) == (len(LONG), 512)
            for spare in (1, 0):
                result = await it.scheduler.generate(LONG, max_tokens=measured.remaining - spare)
                assert len(result.tokens) == measured.remaining - spare
            with pytest.raises(ContextExceeded, match="by 1:") as caught:
                await it.scheduler.generate(LONG, max_tokens=measured.remaining + 1)
            assert caught.value.details == {
                "prompt": len(LONG),
                "requested": measured.remaining + 1,
                "admitted": 512,
            }
            with pytest.raises(ContextExceeded, match="by 1:"):
                await numbers_of(it.scheduler.generate("x" * 512))
            await it.settled()

    run(main)


def test_full_queues_refuse_and_do_not_grow():
    async def main():
        async with desk(limits={"requests": 2, "decisions": 1}) as it:
            held = it.backend.hold("decode")
            async with it.scheduler.generate(PROMPT, max_tokens=3) as one:
                await held.reached()
                async with it.scheduler.generate(PROMPT, max_tokens=3) as two, trio.open_nursery() as nursery:
                    with pytest.raises(Overloaded, match="2 generation requests are open, the limit is 2"):
                        await it.scheduler.generate(PROMPT, max_tokens=3)
                    nursery.start_soon(it.scheduler.decide, "Yes?", ["a"])
                    while not it.scheduler.statistics().decision.open:
                        await trio.lowlevel.checkpoint()
                    with pytest.raises(Overloaded, match="1 decisions are open, the limit is 1"):
                        await it.scheduler.decide("Yes?", ["b"])
                    held.release()
                    await one.result()
                    await two.result()
            await it.settled()
            assert (await it.scheduler.generate(PROMPT, max_tokens=3)).outcome == "completed"

    run(main)


@pytest.mark.doors("trio")
@pytest.mark.parametrize("month", [5, 9])
def test_a_prompt_is_measured_as_of_the_time_that_it_is_rendered_for(month):
    async def main():
        async with desk() as it:
            kit = attrs.evolve(it.scheduler._kits["generation"], template=ChatTemplate("{{ strftime_now('%B') }}"))
            scheduler = Scheduler(it.runtime, {"generation": kit})
            said, now = [{"role": "user", "content": "Hi"}], datetime(2024, month, 1, tzinfo=UTC)
            result = await scheduler.generate(said, max_tokens=1, now=now)
            assert scheduler.measure(said, now=now).prompt_tokens == result.prompt_tokens == len(f"{now:%B}")

    run(main)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"work_class": "urgent"}, "work_class is 'urgent'"),
        ({"deadline": -1}, "deadline is -1"),
        ({"deadline": "soon"}, "deadline is 'soon'"),
        ({"stop": "abc"}, "stop"),
        ({"prompt": [1, 999]}, r"prompt\[1\] is 999"),
        ({"prompt": ""}, "prompt of 0 tokens"),
        ({"prompt": []}, "messages"),
        ({"prompt": [{"role": "user"}]}, "content"),
    ],
)
def test_bad_requests_are_refused_by_field_and_take_nothing_down(options, message):
    async def main():
        async with desk() as it:
            with pytest.raises(InvalidRequest, match=message):
                await it.scheduler.generate(**{"prompt": PROMPT, **options})
            assert (await it.scheduler.generate(PROMPT, max_tokens=2)).outcome == "completed"
            await it.settled()

    run(main)


@pytest.mark.doors("trio", "blocking")
def test_a_closed_scheduler_says_so():
    async def main():
        async with desk() as it:
            pass
        for call in (
            lambda: it.scheduler.generate(PROMPT, max_tokens=2).__aenter__(),
            lambda: it.scheduler.decide("Yes?", ["a"]),
        ):
            with pytest.raises(Closed):
                await call()
        with pytest.raises((InvalidRequest, Closed), match=r"retry is not open|scheduler is closed"):
            await it.scheduler.retry()
        assert not it.scheduler.readiness().ready
        assert it.runtime.host.listening == 0

    run(main)


def test_requests_open_at_the_end_of_the_block_fail_with_closed():
    async def main():
        outcomes = []

        async def client(call):
            with pytest.raises(Closed):
                await call
            outcomes.append("closed")

        async def at_the_end(it, held):
            """Nothing may complete before the end has begun, however far away the door is."""
            while it.scheduler.readiness().ready:
                await trio.lowlevel.checkpoint()
            held.release()

        async with trio.open_nursery() as nursery, desk(generation={"sequences": 1}) as it:
            held = it.backend.hold("decode")
            nursery.start_soon(client, it.scheduler.generate(PROMPT, max_tokens=400).whole())
            await held.reached()
            nursery.start_soon(client, it.scheduler.generate(LONG, max_tokens=9).whole())
            nursery.start_soon(client, it.scheduler.decide("Yes?", ["a", "b"]))
            while it.runtime.host.listening < 3:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(at_the_end, it, held)
        assert outcomes == ["closed"] * 3

    run(main)


@pytest.mark.doors("trio")
def test_a_generation_that_could_not_be_submitted_has_ended_with_why():
    """Whoever else waits for its pieces or its result is told the same, and nobody waits for ever."""

    async def main():
        async with desk() as it:
            late = it.scheduler.generate(PROMPT, max_tokens=2)
        with pytest.raises(Closed):
            await late.__aenter__()
        with pytest.raises(Closed):
            await late.result()
        with pytest.raises(Closed):
            await anext(late)

    run(main)


@pytest.mark.doors("trio")
def test_the_id_of_an_open_request_is_refused_and_takes_nothing_from_it():
    async def main():
        async with desk() as it:
            expected = await it.scheduler.generate(PROMPT, max_tokens=6, retain=False)
            held = it.backend.hold("decode")
            async with it.scheduler.generate(PROMPT, max_tokens=6, retain=False) as first:
                await held.reached()
                same = it.scheduler.generate(LONG, max_tokens=3)
                same._message = attrs.evolve(same._message, request=first.request)
                with pytest.raises(InvalidRequest, match=f"{first.request} is already open"):
                    await same.__aenter__()
                with pytest.raises(InvalidRequest, match="already open"):
                    it.runtime.decide(SubmitDecision(first.request, (1,), ((2,),), ("rank",), "m"), lambda *_: None)
                held.release()
                assert (await first.result()).tokens == expected.tokens
            await it.settled()

    run(main)
