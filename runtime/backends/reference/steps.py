"""Steps over loaded weights: each takes its arrays from the step's workspace and gives them back however it ends."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

import numpy as np

from ...models.heads import Head
from ..contract import DecodeInput, Sampled, Sampler, Segment
from .cache import Slot
from .kernel import Chunk, chunk_layers, last_hidden, open_chunk, rms_norm
from .layout import Array, ModelWeights
from .resident import Resident
from .scoring import head_value
from .shapes import ChunkShape
from .workspace import ScratchWorkspace


@contextmanager
def _chunk(
    scratch: ScratchWorkspace, weights: ModelWeights, slot: Slot, start: int, tokens: Sequence[int]
) -> Iterator[Chunk]:
    """A chunk whose positions count as not evaluated until it is whole."""
    mark = scratch.mark()
    try:
        yield _open(scratch, weights, slot, start, tokens)
    finally:
        scratch.release(mark)


def _open(scratch: ScratchWorkspace, weights: ModelWeights, slot: Slot, start: int, tokens: Sequence[int]) -> Chunk:
    slot.check(start, len(tokens))
    chunk = open_chunk(scratch, weights, ChunkShape(weights.config, len(tokens), start + len(tokens)), tokens)
    slot.filled = start
    return chunk


def _sample(scratch: ScratchWorkspace, weights: ModelWeights, chunk: Chunk, sampler: Sampler) -> Sampled:
    """Sample from the last position's logits."""
    mark = scratch.mark()
    try:
        logits: Array = scratch.take((weights.config.vocabulary,))
        np.matmul(weights.output, last_hidden(chunk, weights), out=logits)
        return sampler.sample(logits)
    finally:
        scratch.release(mark)


def run_prefill(
    scratch: ScratchWorkspace,
    weights: ModelWeights,
    slot: Slot,
    start: int,
    tokens: Sequence[int],
    sampler: Sampler | None,
) -> Generator[Segment, None, Sampled | None]:
    """Evaluate one chunk; with a sampler, the last position's logits too, in a segment of their own."""
    with _chunk(scratch, weights, slot, start, tokens) as chunk:
        for _ in chunk_layers(chunk, weights, slot):
            yield Segment()
        slot.filled = start + len(tokens)
        if sampler is None:
            return None
        yield Segment()
        return _sample(scratch, weights, chunk, sampler)


def run_decode(
    scratch: ScratchWorkspace,
    weights: ModelWeights,
    slots: Sequence[Slot],
    rows: Sequence[DecodeInput],
    samplers: Sequence[Sampler],
) -> tuple[Sampled, ...]:
    """One token for each row; the rows advance side by side and share nothing but the weights."""
    mark = scratch.mark()
    try:
        pairs = list(zip(slots, rows, strict=True))
        chunks = [_open(scratch, weights, slot, row.position, [row.token]) for slot, row in pairs]
        layers = [chunk_layers(chunk, weights, slot) for chunk, slot in zip(chunks, slots, strict=True)]
        for _ in zip_longest(*layers):
            pass
        for slot, row in pairs:
            slot.filled = row.position + 1
        return tuple(_sample(scratch, weights, chunk, sampler) for chunk, sampler in zip(chunks, samplers, strict=True))
    finally:
        scratch.release(mark)


def run_score(
    scratch: ScratchWorkspace,
    weights: ModelWeights,
    slot: Slot,
    start: int,
    tokens: Sequence[int],
    heads: Sequence[Head],
) -> Generator[Segment, None, tuple[float, ...]]:
    """Evaluate a decision row behind its instruction and give the heads' values; the row's positions don't stay."""
    with _chunk(scratch, weights, slot, start, tokens) as chunk:
        for _ in chunk_layers(chunk, weights, slot):
            yield Segment()
        yield Segment()
        hidden = last_hidden(chunk, weights)
        return tuple(head_value(scratch, weights, hidden, head) for head in heads)


def run_logits(
    scratch: ScratchWorkspace, weights: ModelWeights, slot: Slot, start: int, tokens: Sequence[int]
) -> Array:
    """Evaluate one chunk and give all its logits, float32 ``(len(tokens), vocabulary)``, in memory of their own."""
    with _chunk(scratch, weights, slot, start, tokens) as chunk:
        for _ in chunk_layers(chunk, weights, slot):
            pass
        slot.filled = start + len(tokens)
        rms_norm(chunk.hidden, weights.final_norm, weights.config.eps, chunk.normed, chunk.squares[:, 0])
        logits: Array = np.matmul(chunk.normed, weights.output.T)
        return logits


def run_warm(scratch: ScratchWorkspace, resident: Resident) -> Generator[Segment, None, None]:
    """Run a chunk, a decode row and every head; the first slot of each role is empty afterwards."""
    weights = resident.loaded()
    quiet = _Quiet()
    heads = tuple(resident.facts.heads.values())
    for role, slots in resident.slots.items():
        for slot in slots[:1]:
            tokens = [0] * min(resident.chunk, slot.capacity)
            slot.filled = 0
            if role == "generation":
                yield from run_prefill(scratch, weights, slot, 0, tokens, quiet)
                yield Segment()
                run_decode(scratch, weights, [slot], [DecodeInput(0, 0, 0)], [quiet])
            else:
                yield from run_score(scratch, weights, slot, 0, tokens, heads)
            slot.filled = 0


class _Quiet:
    """A sampler for steps whose result nobody wants."""

    def sample(self, logits: Array) -> Sampled:
        return Sampled(0)
