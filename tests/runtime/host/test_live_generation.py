"""The live host: streams, limits, cancellation and reuse, on the reference backend with points where it can be held."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing
from coresident.actors.effects import AskYield
from coresident.actors.errors import InvalidRequest, Overloaded
from coresident.actors.messages import Expire
from coresident.runtime.models.sampling import SamplingParams

from support.live import LONG, Heard, desk, numbers_of, run

pytestmark = pytest.mark.usefixtures("front_door")

PROMPT = "The sea is wide and the wind is"
LOGPROBS = SamplingParams(logprobs=3)


async def solo(prompt, max_tokens: int = 12, **options):
    """What a request gives with a scheduler to itself."""
    async with desk(**options) as alone:
        return await numbers_of(alone.scheduler.generate(prompt, max_tokens=max_tokens, sampling=LOGPROBS))


def test_a_piece_arrives_before_the_answer_has_ended():
    async def main():
        async with desk() as it:
            held = it.backend.hold("decode", skip=3)
            async with it.scheduler.generate(PROMPT, max_tokens=12) as stream:
                first = await anext(stream)
                await held.reached()
                assert it.scheduler.statistics().generation.open == 1
                held.release()
                rest = [piece async for piece in stream]
                result = await stream.result()
            assert [first.token, *(piece.token for piece in rest)] == list(result.tokens)
            assert first.text + "".join(piece.text for piece in rest) == result.text
            assert (result.outcome, result.reason, len(result.tokens)) == ("completed", "length", 12)
            assert 0 < result.first_token_ns <= result.total_ns
            await it.settled()

    run(main)


def test_the_one_call_form_gives_what_streaming_gives():
    async def main():
        async with desk() as it:
            async with it.scheduler.generate(PROMPT, max_tokens=12) as stream:
                streamed = [piece async for piece in stream]
            result = await it.scheduler.generate(PROMPT, max_tokens=12)
            assert result.tokens == tuple(piece.token for piece in streamed if piece.token is not None)
            assert result.text == "".join(piece.text for piece in streamed)

    run(main)


def test_a_generation_is_started_once_and_before_it_is_read():
    async def main():
        async with desk() as it:
            stream = it.scheduler.generate(PROMPT, max_tokens=2)
            with pytest.raises(InvalidRequest, match="not started"):
                await anext(stream)
            with pytest.raises(InvalidRequest, match="not started"):
                await stream.result()
            stream.cancel()
            await stream
            with pytest.raises(InvalidRequest, match="already started"):
                await stream

    run(main)


@pytest.mark.parametrize(
    ("operation", "segment", "skip"),
    [("prefill", 1, 0), ("prefill", 3, 1), ("decode", 1, 0), ("decode", 1, 5)],
    ids=["first prefill", "mid-prefill", "first decode", "mid-decode"],
)
def test_R5_a_cancel_costs_at_most_the_running_segment(operation, segment, skip):
    """The device stands inside a segment when the client cancels; it runs that one to its end and no other."""

    async def main():
        expected = await solo(LONG)
        asked = Heard(AskYield)
        async with desk([asked], generation={"reuse": "grid"}) as it:
            held = it.backend.hold(operation, segment, skip)
            async with it.scheduler.generate(LONG, max_tokens=40) as stream:
                await held.reached()
                before = it.backend.segments[operation]
                stream.cancel()
                await asked.event.wait()
                held.release()
            assert it.backend.segments[operation] == before
            assert (await stream.result()).outcome == "cancelled"
            await it.settled()
            again = await numbers_of(it.scheduler.generate(LONG, max_tokens=12, sampling=LOGPROBS))
            assert again == expected
            await it.settled()

    run(main)


def test_R5_a_request_cancelled_in_the_queue_never_runs():
    async def main():
        async with desk(generation={"sequences": 1}) as it:
            held = it.backend.hold("prefill")
            async with it.scheduler.generate(PROMPT, max_tokens=3) as first:
                await held.reached()
                with trio.CancelScope() as scope:
                    async with it.scheduler.generate(LONG, max_tokens=3):
                        scope.cancel()
                        await trio.sleep_forever()
                held.release()
                assert (await first.result()).outcome == "completed"
            assert sum(tokens for _, _, tokens in it.backend.prefilled) == len(PROMPT)
            await it.settled()

    run(main)


@pytest.mark.doors("trio")
def test_R5_a_cancel_is_heard_above_a_full_mailbox():
    async def main():
        asked = Heard(AskYield)
        async with desk([asked], limits={"mailbox": 2}) as it:
            held = it.backend.hold("decode")
            async with it.scheduler.generate(PROMPT, max_tokens=40) as first:
                await held.reached()
                async with AsyncExitStack() as stack:
                    streams = [first]

                    async def fill():
                        while True:
                            stream = it.scheduler.generate("a", max_tokens=3)
                            streams.append(await stack.enter_async_context(stream))

                    with pytest.raises(Overloaded, match="2 messages wait for the generation actor, the limit is 2"):
                        await fill()
                    for stream in streams * 2:
                        stream.cancel()
                    await asked.event.wait()
                    held.release()
            assert 3 <= len(streams) <= 4
            assert {(await stream.result()).outcome for stream in streams} == {"cancelled"}
            await it.settled()

    run(main)


def test_R5_chunks_that_completed_are_kept_by_a_cancel():
    async def main():
        expected = await solo(LONG)
        asked = Heard(AskYield)
        async with desk([asked]) as it:
            held = it.backend.hold("prefill", 1, skip=4)
            async with it.scheduler.generate(LONG, max_tokens=12) as stream:
                await held.reached()
                stream.cancel()
                await asked.event.wait()
                held.release()
            stream = it.scheduler.generate(LONG, max_tokens=12, sampling=LOGPROBS)
            assert await numbers_of(stream) == expected
            assert (stream.reuse.reused, stream.reuse.kind) == (64, "exact_continuation")

    run(main)


@pytest.mark.doors("trio")
def test_a_deadline_ends_a_request_with_what_it_has():
    async def main():
        expired = Heard(Expire)
        async with desk([expired]) as it:
            held = it.backend.hold("decode", skip=2)
            async with it.scheduler.generate(PROMPT, max_tokens=400, deadline=10) as stream:
                await held.reached()
                clock.jump(15)
                await expired.event.wait()
                held.release()
                result = await stream.result()
            assert (result.outcome, result.reason) == ("cancelled", "deadline")
            assert len(result.tokens) == 4
            await it.settled()

    clock = trio.testing.MockClock()
    run(main, clock=clock)


def test_streams_beside_each_other_give_what_each_gives_alone():
    async def main():
        prompts = [PROMPT, LONG, "A", LONG[:50] + "x", PROMPT + "s"]
        expected = [await solo(prompt) for prompt in prompts]
        async with desk(generation={"sequences": 3, "retained": 0}) as it:
            got = [None] * len(prompts)

            async def client(place, work_class):
                stream = it.scheduler.generate(prompts[place], max_tokens=12, sampling=LOGPROBS, work_class=work_class)
                got[place] = await numbers_of(stream)

            async with trio.open_nursery() as nursery:
                for place in range(len(prompts)):
                    nursery.start_soon(client, place, "utility" if place % 2 else "foreground")
            assert got == expected
            await it.settled()

    run(main)


def test_a_slow_reader_misses_nothing():
    async def main():
        async with desk() as it:
            async with it.scheduler.generate(PROMPT, max_tokens=30) as stream:
                result = await stream.result()
                assert tuple(piece.token for piece in [p async for p in stream]) == result.tokens
            await it.settled()

    run(main)


def test_stop_strings_end_the_answer_and_are_not_part_of_it():
    async def main():
        async with desk() as it:
            free = await it.scheduler.generate(PROMPT, max_tokens=12)
            word = free.text[4:6]
            stopped = await it.scheduler.generate(PROMPT, max_tokens=12, stop=[word])
            assert stopped.reason == "stop_string"
            assert stopped.text == free.text[: free.text.index(word)]
            assert free.tokens[: len(stopped.tokens)] == stopped.tokens

    run(main)


def test_seeds_repeat_and_do_not_share():
    async def main():
        async with desk() as it:

            def sample(seed):
                return it.scheduler.generate(PROMPT, max_tokens=16, sampling=SamplingParams(temperature=1.0, seed=seed))

            one, again, other = await sample(7), await sample(7), await sample(8)
            assert one.tokens == again.tokens
            assert one.tokens != other.tokens

    run(main)
