"""Running every kernel once, so that the first request pays no first-use cost."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from ...models.sampling import GreedySampler, SamplingParams
from ..contract import DecodeInput, Sampled, Sampler, Segment
from .dispatches import TOKENS
from .resident import Resident
from .slots import Slot
from .steps import run_decode, run_prefill, run_score
from .workspaces import StepMemory


def run_warm(memory: StepMemory, resident: Resident) -> Generator[Segment, None, None]:
    """Run chunks, decode rows and every head; slots are empty afterwards."""
    try:
        for role, slots in resident.slots.items():
            if slots and role == "generation":
                yield from _generation(memory, resident, slots)
            elif slots:
                yield from _decision(memory, resident, slots[0])
    finally:
        for slots in resident.slots.values():
            for slot in slots:
                slot.filled = 0


def _generation(memory: StepMemory, resident: Resident, slots: list[Slot]) -> Generator[Segment, None, None]:
    running, samplers = resident.loaded(), _samplers()
    for count in _lengths(resident.chunk, slots[0].capacity):
        slots[0].filled = 0
        yield from run_prefill(memory, running, slots[0], 0, [0] * count, samplers[0])
        yield Segment()
    for rows in sorted({min(count, len(slots)) for count in TOKENS}):
        inputs = [DecodeInput(number, 0, 0) for number in range(rows)]
        for sampler in samplers:
            for slot in slots[:rows]:
                slot.filled = 0
            run_decode(memory, running, slots[:rows], inputs, [sampler] * rows)
            yield Segment()


def _decision(memory: StepMemory, resident: Resident, slot: Slot) -> Generator[Segment, None, None]:
    heads = tuple(resident.facts.heads.values())
    for count in _lengths(resident.chunk, slot.capacity):
        slot.filled = 0
        yield from run_score(memory, resident.loaded(), slot, 0, [0] * count, heads)
        yield Segment()


def _lengths(chunk: int, capacity: int) -> list[int]:
    """A whole chunk, and shorter ones that take the kernels for few tokens."""
    return sorted({min(length, chunk, capacity) for length in (*TOKENS, chunk)}, reverse=True)


def _samplers() -> tuple[Sampler, ...]:
    """One that takes logits, one that takes the likeliest token, and one that takes log-probabilities too."""
    return _Quiet(), GreedySampler(SamplingParams()), GreedySampler(SamplingParams(logprobs=2))


class _Quiet:
    """A sampler for steps whose result nobody wants."""

    def sample(self, logits: NDArray[np.float32]) -> Sampled:
        return Sampled(0)
