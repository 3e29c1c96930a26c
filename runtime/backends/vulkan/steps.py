"""Steps over a loaded model: parameters are written, recordings submitted one by one, and what is wanted is read.

A chunk's recordings depend on its length and its slot alone, so they are made once for each region. Between two of
them a chunk can wait for as long as it likes: its region is its own until it ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

import attrs
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import InvalidRequest
from ....actors.work import StepKind
from ...models.heads import Head
from ..contract import DecodeInput, Sampled, Sampler, Segment
from .attention_passes import Span
from .passes import write_layers
from .programs import Program
from .reading import ALL, Want, write_wanted
from .recording import Commands
from .regions import Region
from .sampling import sampled, want_of
from .scoring import head_values
from .shapes import TILE, RegionClass
from .slots import Slot
from .workspaces import RegionPool, StepMemory
from .writing import WHOLE, Running, record

Values = NDArray[np.float32]

CPU_SEGMENT = 64 << 20
GPU_SEGMENT = 4 << 30
"""Multiply-adds of a segment: some milliseconds."""

CPU_LAYERS = 1
GPU_LAYERS = 4
"""Layers of a segment, where they are small: so a chunk of any model can be suspended."""


@contextmanager
def chunk(
    memory: StepMemory, running: Running, form: RegionClass, slot: Slot, start: int, tokens: Sequence[int]
) -> Iterator[Region]:
    """A region for consecutive tokens of a slot, which count as not evaluated until the chunk is whole."""
    with memory.region(running.device, running.layouts, form) as region:
        write_parameters(running, region, tokens, range(start, start + len(tokens)))
        slot.filled = start
        yield region


def checked(running: Running, slot: Slot, start: int, tokens: Sequence[int]) -> RegionClass:
    """The class of a chunk. Raises InvalidRequest for positions that the slot has no room for, or after a gap."""
    slot.check(start, len(tokens))
    return running.layouts.class_of(StepKind.PREFILL, 1, len(tokens), start + len(tokens))


def write_parameters(running: Running, region: Region, tokens: Sequence[int], positions: Sequence[int]) -> None:
    """Tell the kernels what a step's tokens are and where. Raises InvalidRequest for one outside the vocabulary."""
    ids = np.asarray(tokens, np.int64)
    vocabulary = running.layouts.config.vocabulary
    if ids.min() < 0 or ids.max() >= vocabulary:
        bad = int(ids.min()) if ids.min() < 0 else int(ids.max())
        why = f"the vocabulary has {vocabulary} tokens"
        raise InvalidRequest(f"token {bad} cannot be looked up: {why}", token=bad, vocabulary=vocabulary)
    layout = running.layouts.parameters(region.form)
    layout.write(region.parameters(), tokens, positions, running.layouts.facts.frequencies)


def layers(running: Running, region: Region, spans: Sequence[Span], budget: int) -> Program:
    """The recordings of the embedding and all layers."""
    tokens = sum(span.count for span in spans)
    key = "layers", budget, tuple((span.count, span.slot.key) for span in spans)
    return region.program(
        key, partial(record, running, region, budget, partial(write_layers, tokens=tokens, spans=spans))
    )


def wanted(running: Running, region: Region, first: int, wants: tuple[Want, ...]) -> Program:
    """The recordings of what is read of rows ``first ...`` of the last hidden states."""
    key = "wanted", first, wants
    write = partial(write_wanted, first=first, wants=wants)
    return region.program(key, partial(record, running, region, WHOLE, write))


def segment_of(running: Running) -> int:
    """Multiply-adds of one segment on this device."""
    return CPU_SEGMENT if running.on_cpu else GPU_SEGMENT


def run_layers(running: Running, region: Region, slot: Slot, tokens: int) -> Generator[Segment, None, None]:
    """Submit a chunk's recordings one by one; a segment ends after each, the last aside."""
    most = CPU_LAYERS if running.on_cpu else GPU_LAYERS
    budget = min(segment_of(running), most * tokens * running.layouts.layer_operations)
    first = True
    for commands in layers(running, region, [Span(0, tokens, slot)], budget):
        if not first:
            yield Segment()
            region.check()
        first = False
        running.device.run([commands])


def run_prefill(
    memory: StepMemory, running: Running, slot: Slot, start: int, tokens: Sequence[int], sampler: Sampler | None
) -> Generator[Segment, None, Sampled | None]:
    """Evaluate one chunk; with a sampler, the last position's logits too, in a segment of their own."""
    form = checked(running, slot, start, tokens)
    with chunk(memory, running, form, slot, start, tokens) as region:
        yield from run_layers(running, region, slot, len(tokens))
        slot.filled = start + len(tokens)
        if sampler is None:
            return None
        yield Segment()
        region.check()
        want = want_of(sampler, running.layouts.config.vocabulary)
        running.device.run(tuple(wanted(running, region, len(tokens) - 1, (want,))))
        return sampled(running, region, 0, want, sampler)


def run_decode(
    memory: StepMemory,
    running: Running,
    slots: Sequence[Slot],
    rows: Sequence[DecodeInput],
    samplers: Sequence[Sampler],
) -> tuple[Sampled, ...]:
    """One token for each row; products take all rows together, which changes none of their numbers."""
    for slot, row in zip(slots, rows, strict=True):
        slot.check(row.position, 1)
    context = max(row.position for row in rows) + 1
    form = running.layouts.class_of(StepKind.DECODE, len(rows), 1, context)
    with memory.region(running.device, running.layouts, form) as region:
        write_parameters(running, region, [row.token for row in rows], [row.position for row in rows])
        spans = [Span(number, 1, slot) for number, slot in enumerate(slots)]
        for slot, row in zip(slots, rows, strict=True):
            slot.filled = row.position
        waiting = _run_rows(running, region, spans)
        found: list[Sampled] = []
        for first in range(0, len(rows), TILE):
            some = samplers[first : first + TILE]
            wants = tuple(want_of(sampler, running.layouts.config.vocabulary) for sampler in some)
            running.device.run((*waiting, *wanted(running, region, first, wants)))
            waiting = ()
            if not first:
                for slot, row in zip(slots, rows, strict=True):
                    slot.filled = row.position + 1
            found += [sampled(running, region, at, wants[at], sampler) for at, sampler in enumerate(some)]
        return tuple(found)


def _run_rows(running: Running, region: Region, spans: Sequence[Span]) -> tuple[Commands, ...]:
    """Submit the layers of a decode step but for the last recording, which comes back to be run with what is read.

    On a CPU that is all there is. The watchdogs of graphics drivers, two seconds for some, want short submits.
    """
    waiting: tuple[Commands, ...] = ()
    for commands in layers(running, region, spans, WHOLE if running.on_cpu else GPU_SEGMENT):
        if waiting:
            running.device.run(waiting)
        waiting = (commands,)
    return waiting


def run_score(
    memory: StepMemory, running: Running, slot: Slot, start: int, tokens: Sequence[int], heads: Sequence[Head]
) -> Generator[Segment, None, tuple[float, ...]]:
    """Evaluate a decision row behind its instruction and give the heads' values; the row's positions don't stay."""
    form = checked(running, slot, start, tokens)
    with chunk(memory, running, form, slot, start, tokens) as region:
        yield from run_layers(running, region, slot, len(tokens))
        yield Segment()
        region.check()
        return head_values(running, region, len(tokens) - 1, heads)


def run_logits(pool: RegionPool, running: Running, slot: Slot, start: int, tokens: Sequence[int]) -> Values:
    """Evaluate one chunk and give all its logits, float32 ``(len(tokens), vocabulary)``, in memory of their own."""
    vocabulary = running.layouts.config.vocabulary
    logits = np.empty((len(tokens), vocabulary), np.float32)
    form = attrs.evolve(checked(running, slot, start, tokens), logit_rows=TILE)
    memory = StepMemory(running.layouts.region_bytes(form), pool)
    with closing(memory), chunk(memory, running, form, slot, start, tokens) as region:
        for _ in run_layers(running, region, slot, len(tokens)):
            pass
        slot.filled = start + len(tokens)
        for first in range(0, len(tokens), TILE):
            rows = logits[first : first + TILE]
            running.device.run(tuple(wanted(running, region, first, (ALL,) * len(rows))))
            for at, row in enumerate(rows):
                row[:] = region.back(running.layouts.logits_back_at(at), vocabulary)
    return logits
