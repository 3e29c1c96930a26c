"""Decode rows on Vulkan: one step takes rows of any number and length, and each has the bits that it has alone."""

from __future__ import annotations

from typing import Any

import pytest
from coresident.runtime.backends.contract import PlanRequest

from support.backends import opened_on
from support.reference import decode, prefill

LENGTHS = (3, 257, 8, 255, 64, 9, 256, 65, 1)
"""Some end where the memory of a step gets larger, so that alone and together a row is read from different places."""

ROWS = [(slot, length, 5 + slot) for slot, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def backend() -> Any:
    backend = opened_on("vulkan", request=PlanRequest(context=300, slots=len(LENGTHS), chunk=64))
    for slot, length, _ in ROWS:
        prefill(backend, slot, [(7 * at + slot) % 251 for at in range(length)])
    return backend


@pytest.mark.parametrize("count", [2, 4, 5, 8, 9])
def test_R10_rows_of_one_step_give_the_bits_that_each_has_alone(backend, count):
    together = decode(backend, ROWS[:count])
    for row, logits in zip(ROWS, together, strict=False):
        assert decode(backend, [row])[0].tobytes() == logits.tobytes(), row
    assert len({logits.tobytes() for logits in together}) == count
