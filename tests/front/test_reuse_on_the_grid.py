"""Reuse on the chunk grid gives a cold run's numbers to the bit, also behind generated tokens; exact reuse need not."""

from __future__ import annotations

import pytest
import trio
from coresident.runtime.config import Config, structure

from coresident import SamplingParams, open_scheduler

CHUNK = 32
FIRST = [(7 * index + 3) % 251 for index in range(40)]
NEXT = [(11 * index + 5) % 251 for index in range(30)]


def config(reuse: str) -> Config:
    return structure({"generation": {"context": 512, "chunk": CHUNK, "reuse": reuse}})


async def numbers(scheduler, prompt):
    """Every token's log-probability, and how much was reused."""
    async with scheduler.generate(prompt, max_tokens=8, sampling=SamplingParams(logprobs=0)) as stream:
        pieces = [(piece.token, piece.logprob) async for piece in stream]
        return pieces, (await stream.result()).reused


def second_turn(reuse: str):
    """The second of two turns after a first one whose answer crosses a chunk boundary; and the same prompt cold."""

    async def main():
        async with open_scheduler(config(reuse)) as scheduler:
            answer = await scheduler.generate(FIRST, max_tokens=40)
            prompt = [*FIRST, *answer.tokens, *NEXT]
            warm = await numbers(scheduler, prompt)
        async with open_scheduler(config(reuse)) as scheduler:
            return warm, await numbers(scheduler, prompt)

    return trio.run(main)


def test_grid_reuse_is_bit_identical_to_a_cold_run() -> None:
    (warm, reused), (cold, none) = second_turn("grid")
    # The first prompt's one whole chunk: the chunk that the answer completed was computed token by token.
    assert (reused, none) == (CHUNK, 0)
    assert warm == cold


def test_exact_reuse_takes_every_token_and_may_round_differently() -> None:
    (warm, reused), (cold, _) = second_turn("exact")
    assert reused == len(FIRST) + 40 - 1
    assert [token for token, _ in warm] == [token for token, _ in cold]
    assert [value for _, value in warm] == pytest.approx([value for _, value in cold], abs=1e-4)
    assert warm != cold, "the control: off the grid this backend rounds differently"
