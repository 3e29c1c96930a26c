"""The live host and retained prefixes: what is reused, what is claimed, and that numbers do not change."""

from __future__ import annotations

import pytest
from coresident.runtime.models.sampling import SamplingParams

from support.live import LONG, desk, numbers_of, run

pytestmark = pytest.mark.usefixtures("front_door")

LOGPROBS = SamplingParams(logprobs=3)


def test_R19_an_exact_continuation_prefills_only_its_suffix():
    async def main():
        async with desk() as it:
            first = await it.scheduler.generate(LONG, max_tokens=5)
            turn = [*LONG.encode(), *first.tokens, *b" And then?"]
            stream = it.scheduler.generate(turn, max_tokens=2)
            result = await stream
            held = len(LONG) + 4
            assert (stream.reuse.kind, result.reused, result.prefilled) == (
                "exact_continuation",
                held,
                len(turn) - held,
            )

    run(main)


def test_R20_a_static_prefix_is_reused_when_the_history_changed():
    async def main():
        async with desk() as it:
            await it.scheduler.generate(LONG + "one history", max_tokens=2)
            stream = it.scheduler.generate(LONG + "another", max_tokens=2)
            result = await stream
            assert (stream.reuse.kind, result.reused, result.prefilled) == ("static_prefix", len(LONG), len("another"))

    run(main)


@pytest.mark.parametrize("reuse", ["exact", "grid"])
@pytest.mark.parametrize("shared", [0, 1, 15, 16, 17, 31, 32, 33, 100])
def test_R21_claims_are_bounded_and_on_a_boundary(reuse, shared):
    async def main():
        async with desk(generation={"reuse": reuse}) as it:
            first = "".join(chr(97 + n % 20) for n in range(100))
            await it.scheduler.generate(first, max_tokens=1)
            stream = it.scheduler.generate(first[:shared] + "Z" * (shared < 100), max_tokens=1)
            result = await stream
            claim = stream.reuse
            assert 0 <= claim.reused <= claim.matched <= claim.prompt - 1
            assert claim.matched == (min(shared, 99) if claim.reused else claim.matched)
            grid = 16 if reuse == "grid" else 1
            assert claim.reused == min(shared, claim.prompt - 1) // grid * grid
            assert result.prefilled == claim.prompt - claim.reused

    run(main)


def test_grid_reuse_is_bit_identical_to_a_cold_run():
    async def main():
        async with desk(generation={"retained": 0}) as cold:
            expected = await numbers_of(cold.scheduler.generate(LONG, max_tokens=8, sampling=LOGPROBS))
            again = await numbers_of(cold.scheduler.generate(LONG, max_tokens=8, sampling=LOGPROBS))
            assert again == expected
            assert cold.scheduler.statistics().generation.prefixes.entries == 0
        async with desk(generation={"reuse": "grid"}) as it:
            await it.scheduler.generate(LONG[:100], max_tokens=1)
            stream = it.scheduler.generate(LONG, max_tokens=8, sampling=LOGPROBS)
            assert await numbers_of(stream) == expected
            assert stream.reuse.reused == 96

    run(main)


def test_R18_a_utility_request_leaves_the_conversation_as_it_was():
    async def main():
        async with desk() as it:
            first = await it.scheduler.generate(LONG, max_tokens=4)
            utility = it.scheduler.generate("Name this chat", max_tokens=4, work_class="utility", retain=False)
            await utility
            turn = it.scheduler.generate([*LONG.encode(), *first.tokens, 33], max_tokens=2)
            await turn
            assert turn.reuse.reused == len(LONG) + 3

    run(main)
