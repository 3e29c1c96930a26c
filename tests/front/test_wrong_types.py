"""Values of a wrong type are refused by field, and what is not started can be given up."""

from __future__ import annotations

import asyncio

import pytest
import trio

from coresident import ContextExceeded, InvalidRequest, SamplingParams, WorkClass, open_engine, open_scheduler
from support.live import config, run

WRONG = {
    "sampling": ({"temperature": 0.5}, 0.7, "greedy"),
    "stop": (None, 5, {"a": 1}, [1]),
    "work_class": (None, 1, WorkClass.DECISION, "urgent"),
    "template_options": (5, "x", ["a"], {"messages": []}, {"add_generation_prompt": False}, {1: 2}),
    "after": (7, ["g1"]),
    "conversation": (7, ["c"], 0),
    "max_tokens": ("7", 0, True),
    "deadline": ("7", 0, True),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_a_field_of_a_wrong_type_is_named(field, value):
    async def main():
        async with open_scheduler(config()) as scheduler:
            with pytest.raises(InvalidRequest, match=rf"^{field}") as caught:
                scheduler.generate("Hello", **{field: value})
            assert caught.value.message

    run(main)


@pytest.mark.parametrize(
    "prompt", [None, 5, b"bytes", {"role": "user", "content": "x"}, [], [None], ["text"], [1, "a"]]
)
def test_a_prompt_of_a_wrong_type_is_refused_wherever_it_is_taken(prompt):
    async def main():
        async with open_scheduler(config()) as scheduler:
            for take in (scheduler.generate, scheduler.measure, scheduler.assemble):
                with pytest.raises(InvalidRequest, match=r"prompt|messages"):
                    take(prompt)

    run(main)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rows": ["a", 5]}, r"rows\[1\] is 5"),
        ({"rows": None}, "rows is None"),
        ({"rows": {"a": 1}}, "rows is {"),
        ({"heads": [1]}, r"heads\[0\] is 1"),
        ({"after": 5}, "after is 5"),
        ({"instruction": None}, "instruction is None"),
    ],
)
def test_decisions_name_what_is_of_a_wrong_type(options, named):
    async def main():
        async with open_scheduler(config()) as scheduler:
            with pytest.raises(InvalidRequest, match=named):
                await scheduler.decide(**{"instruction": "Food?", "rows": ["a"], **options})

    run(main)


def test_a_row_that_does_not_fit_names_itself_its_tokens_and_the_limit():
    async def main():
        async with open_scheduler(config()) as scheduler:
            with pytest.raises(
                ContextExceeded, match=r"^row 1 takes \d+ tokens \(\d+ of the instruction, \d+ of"
            ) as it:
                await scheduler.decide("Food?", ["a", "x" * 300])
            assert "(decision.context) of 256 tokens" in it.value.message
            assert it.value.details["admitted"] == 256
            assert it.value.details["prompt"] > 300

    run(main)


@pytest.mark.parametrize("given", [5, {"device": {}}, [], b"path"])
@pytest.mark.parametrize("opens", [open_scheduler, open_engine])
def test_what_is_no_configuration_is_refused(opens, given):
    async def main():
        with pytest.raises(InvalidRequest, match=r"^config is "):
            async with opens(given):
                raise AssertionError("opened")

    run(main)


def test_without_trio_it_says_what_is_needed():
    async def main():
        async with open_scheduler(config()):
            raise AssertionError("opened")

    with pytest.raises(RuntimeError, match=r"under Trio: start your program with trio\.run"):
        asyncio.run(main())


def test_a_work_class_may_be_its_member():
    async def main():
        async with open_scheduler(config()) as scheduler:
            for work_class in ("utility", WorkClass.UTILITY, WorkClass.FOREGROUND):
                result = await scheduler.generate(
                    "Hello", max_tokens=2, work_class=work_class, sampling=SamplingParams(logprobs=1)
                )
                assert result.outcome == "completed"

    run(main)


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_cancelled_before_it_began_never_runs(stream):
    async def main():
        async with open_scheduler(config()) as scheduler:
            before = scheduler.statistics().device.grants
            generation = scheduler.generate("Hello", max_tokens=5)
            generation.cancel("changed my mind")
            generation.cancel("again")
            if stream:
                async with generation:
                    assert [piece async for piece in generation] == []
                    result = await generation.result()
            else:
                result = await generation
            assert (result.outcome, result.reason, result.tokens) == ("cancelled", "changed my mind", ())
            assert result.prompt_tokens == scheduler.measure("Hello").prompt_tokens
            assert scheduler.statistics().device.grants == before
            with pytest.raises(InvalidRequest, match="already started"):
                await generation
            assert (await scheduler.generate("Hello", max_tokens=2)).outcome == "completed"

    run(main)


def test_a_generation_that_is_open_when_the_block_ends_raises_closed():
    from coresident import Closed

    ends = []

    async def main():
        async def client(scheduler, started):
            try:
                async with scheduler.generate("Hello", max_tokens=400) as generation:
                    started.set()
                    await generation.result()
            except Closed as error:
                ends.append(error)

        async with trio.open_nursery() as nursery, open_scheduler(config()) as scheduler:
            started = trio.Event()
            nursery.start_soon(client, scheduler, started)
            await started.wait()

    run(main)
    assert len(ends) == 1
