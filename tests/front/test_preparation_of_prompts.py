"""Preparation, live: whatever it got to do, the answer is that of a cold run, to the bit on the chunk grid.

Every backend goes every course; the first one with every kind of sampling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import cycle, product

import pytest
import trio
from coresident.runtime.config import Config, structure

from coresident import Preparation, SamplingParams, Scheduler, open_scheduler
from support.backends import NAMES, needs

BACKENDS = NAMES
CHUNK = 32
SYSTEM = [{"role": "system", "content": "You know the sea, its harbours and its boats. " * 3}]
HISTORY = [
    {"role": "user", "content": "Tell me about harbours. " * 8},
    {"role": "assistant", "content": "They are sheltered places. " * 6},
]
NEXT = [*SYSTEM, *HISTORY, {"role": "user", "content": "And at night?"}]
GREEDY = SamplingParams(logprobs=2)
SEEDED = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=7, logprobs=2)


def config(backend: str, reuse: str = "grid", preparation: str = "idle") -> Config:
    needs(backend)
    return structure(
        {
            "device": {"backend": backend},
            "generation": {"context": 1024, "chunk": CHUNK, "reuse": reuse},
            "policies": {"preparation": preparation},
        }
    )


async def numbers(scheduler: Scheduler, sampling: SamplingParams):
    """Every token with its log-probabilities, and the result."""
    async with scheduler.generate(NEXT, max_tokens=12, sampling=sampling) as stream:
        pieces = [(piece.token, piece.logprob, piece.top) async for piece in stream]
        return pieces, await stream.result()


async def nothing(scheduler: Scheduler, preparation: Preparation) -> None:
    """The next message comes at once."""


async def complete(scheduler: Scheduler, preparation: Preparation) -> None:
    assert (await preparation.result()).outcome == "prepared"


async def interrupted(scheduler: Scheduler, preparation: Preparation) -> None:
    while not preparation.progress[0]:
        await trio.sleep(0)
    preparation.cancel()
    assert (await preparation.result()).outcome in ("cancelled", "prepared")


async def disturbed(scheduler: Scheduler, preparation: Preparation) -> None:
    for _ in range(3):
        await scheduler.decide("Is it about food?", ["bread", "a boat"])
    await preparation.result()


Course = Callable[[Scheduler, Preparation], Awaitable[None]]
COURSES: tuple[Course, ...] = (complete, nothing, interrupted, disturbed)


SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED}
RUNS = [("reference", *run) for run in product(COURSES, SAMPLINGS)]
RUNS += [(name, *run) for name in BACKENDS[1:] for run in zip(COURSES, cycle(SAMPLINGS), strict=False)]


@pytest.mark.parametrize(("backend", "course", "sampling"), RUNS, ids=lambda part: getattr(part, "__name__", part))
def test_R54_R56_R52_cold_equals_prepared(backend, course, sampling):
    """Complete, immediate, interrupted and disturbed preparation all succeed, and change no number."""

    async def main():
        async with open_scheduler(config(backend)) as scheduler:
            cold, alone = await numbers(scheduler, SAMPLINGS[sampling])
        async with open_scheduler(config(backend)) as scheduler:
            await course(scheduler, scheduler.prepare(SYSTEM, HISTORY))
            warm, result = await numbers(scheduler, SAMPLINGS[sampling])
        assert warm == cold
        assert result.text == alone.text
        assert (result.reused + result.prefilled, result.reused % CHUNK) == (result.prompt_tokens, 0)
        if course is not nothing:
            assert result.reused >= CHUNK

    trio.run(main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_R50_R53_known_history_ends_on_the_foreground_grid(backend):
    async def main():
        async with open_scheduler(config(backend)) as scheduler:
            known = scheduler.measure([*SYSTEM, *HISTORY]).prompt_tokens - len("assistant: ")
            prepared = await scheduler.prepare(SYSTEM, HISTORY).result()
            assert (prepared.outcome, prepared.limited) == ("prepared", "")
            assert prepared.goal == prepared.computed == known // CHUNK * CHUNK
            _, result = await numbers(scheduler, GREEDY)
            assert result.reused == prepared.goal

    trio.run(main)


@pytest.mark.parametrize(("backend", "equal"), [("reference", False), ("vulkan", True)])
def test_R53_an_off_grid_prefix_is_the_control(backend, equal):
    """A prefix that ends inside a chunk: on a backend that is bound to its grid the numbers must differ."""

    async def main():
        async with open_scheduler(config(backend)) as scheduler:
            cold, _ = await numbers(scheduler, GREEDY)
        async with open_scheduler(config(backend, reuse="exact")) as scheduler:
            await scheduler.generate([*SYSTEM, *HISTORY], max_tokens=1)
            warm, result = await numbers(scheduler, GREEDY)
        assert result.reused % CHUNK
        assert [token for token, *_ in warm] == [token for token, *_ in cold]
        assert (warm == cold) == equal

    trio.run(main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_R18_a_utility_leaves_the_conversation_as_it_was(backend):
    async def turn(scheduler: Scheduler, utility: bool) -> int:
        await scheduler.generate([*SYSTEM, HISTORY[0]], max_tokens=4)
        if utility:
            await scheduler.generate("A title:", max_tokens=4, work_class="utility", retain=False)
        return (await scheduler.generate(NEXT, max_tokens=2)).reused

    async def main():
        reused = []
        for utility in (False, True):
            async with open_scheduler(config(backend)) as scheduler:
                reused.append(await turn(scheduler, utility))
        assert reused[0] == reused[1] > 0

    trio.run(main)


def test_R55_policies_apply_to_preparation_too():
    async def main():
        async with open_scheduler(config("reference", preparation="never")) as scheduler:
            result = await scheduler.prepare(SYSTEM, HISTORY).result()
            assert (result.outcome, result.computed) == ("declined", 0)
            _, answer = await numbers(scheduler, GREEDY)
            assert answer.reused == 0

    trio.run(main)


def test_a_newer_preparation_of_the_conversation_supersedes_the_older():
    """A late catalog changes what stands early: what both share is kept, the rest serves nobody."""

    async def main():
        async with open_scheduler(config("reference")) as scheduler:
            older = scheduler.prepare(SYSTEM, HISTORY)
            changed = [{**SYSTEM[0], "content": SYSTEM[0]["content"] + "Tools: rope, oar. "}]
            newer = scheduler.prepare(changed, HISTORY)
            first, second = await older.result(), await newer.result()
            assert (first.outcome, second.outcome) == ("superseded", "prepared")
            assert second.computed + second.reused == second.goal
            assert first.wasted <= first.computed

    trio.run(main)


def test_pinned_conversations_stay_and_released_ones_go():
    async def main():
        async with open_scheduler(config("reference")) as scheduler:
            await scheduler.generate(NEXT, max_tokens=1, conversation="a")
            scheduler.pin("a")
            assert (await scheduler.generate(NEXT, max_tokens=1, retain=False)).reused > 0
            scheduler.release("a")
            assert (await scheduler.generate(NEXT, max_tokens=1, retain=False)).reused == 0

    trio.run(main)
