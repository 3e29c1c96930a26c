"""The live host and prefixes with one head: the numbers of every turn are those of a backend that keeps them whole."""

from __future__ import annotations

from itertools import permutations

import attrs
import pytest
import trio
from coresident.runtime.backends.reference import ReferenceBackend
from coresident.runtime.models.sampling import SamplingParams

from support.live import LONG, desk, numbers_of, run

LOGPROBS = SamplingParams(logprobs=3)
NAMES = ("one", "two", "three")


def talk(order):
    """Three conversations with one head, each released in its turn; all numbers, and bytes held before and after."""

    async def main():
        numbers, held = [], []
        async with desk() as it:
            for name in NAMES:
                numbers.append(await numbers_of(turn(it, name)))
                await it.settled()
            for left, name in zip((2, 1, 0), order, strict=True):
                prefixes = it.scheduler.statistics().generation.prefixes
                held.append((prefixes.used, prefixes.shared))
                numbers.append(await numbers_of(turn(it, name)))
                await it.settled()
                it.scheduler.release(name)
                while it.scheduler.statistics().generation.prefixes.entries > left:
                    await trio.lowlevel.checkpoint()
            held.append(it.scheduler.statistics().generation.prefixes.used)
        return numbers, held

    return run(main)


def turn(it, name):
    return it.scheduler.generate(LONG + name, max_tokens=4, sampling=LOGPROBS, conversation=name)


@pytest.mark.parametrize("order", [*permutations(NAMES)][::2], ids=" ".join)
def test_whoever_is_released_first_no_number_changes(order, monkeypatch):
    numbers, held = talk(order)
    capabilities = attrs.evolve(ReferenceBackend.capabilities, retained_block=0)
    monkeypatch.setattr(ReferenceBackend, "capabilities", capabilities)
    whole_numbers, whole = talk(order)
    assert numbers == whole_numbers
    assert held[-1] == whole[-1] == 0
    for (used, shared), (kept, _) in zip(held[:2], whole[:2], strict=True):
        assert (used + shared, shared > 0) == (kept, True)
