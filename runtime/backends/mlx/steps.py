"""Steps over a loaded model: its whole graph is built at once, lazily, and then evaluated layer by layer.

Building allocates nothing. Each evaluation takes one layer's memory and lets it go, so the most that a chunk needs is
what one layer needs, and between two layers a chunk can wait for as long as it likes. Chunks and decode rows are
evaluated one at a time: a product's shape, and so its rounding, depends on the row alone, and there is no padding.
:mod:`.rows` has decision rows side by side.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ....actors.work import DecisionRow, StepKind, StepShape
from ...models.heads import Head
from ...models.sampling import GreedySampler, SamplingParams
from ..contract import DecodeInput, Sampled, Sampler, Segment
from .caches import Slot
from .limits import step_need
from .resident import Resident, Running
from .rows import run_rows
from .scoring import head_values
from .tokens import token_array
from .workspace import StepMemory


def _layers(running: Running, slot: Slot, start: int, tokens: Sequence[int]) -> Generator[Segment, None, mx.array]:
    """Evaluate all keys and values of a chunk, yielding between layers.

    The normalized hidden states ``(1, tokens, hidden)`` come back lazily: what is left of the last layer is evaluated
    only for those who want them.
    """
    ids = token_array([tokens], running.sizes.vocabulary)
    slot.begin(start, len(tokens))
    try:
        hidden = running.model.body(ids, slot.caches)
        for number, cache in enumerate(slot.caches):
            if number:
                yield Segment()
            _evaluate(slot, cache.commit())
        slot.filled = start + len(tokens)
        return hidden
    finally:
        slot.give_up()


def _last_hidden(running: Running, slot: Slot, start: int, tokens: Sequence[int]) -> Generator[Segment, None, mx.array]:
    """Evaluate a chunk with all of its last layer; the last position's hidden state ``(1, 1, hidden)``."""
    hidden = yield from _layers(running, slot, start, tokens)
    yield Segment()
    last = hidden[:, -1:]
    del hidden
    mx.eval(last)
    yield Segment()
    return last


def _evaluate(slot: Slot, arrays: Sequence[mx.array]) -> None:
    """Evaluate what a slot's committed layers are part of; where that fails, nobody knows what they hold."""
    try:
        mx.eval(*arrays)
    except Exception:
        slot.renew()
        raise


def _outcome(running: Running, hidden: mx.array, sampler: Sampler) -> tuple[mx.array, ...]:
    """What a token is chosen from, lazily: float32 logits ``(vocabulary,)`` of the last position.

    Of a plain greedy sampler also the likeliest token, the first of equals, and whether all logits are finite.
    """
    logits = running.model.head(hidden[:, -1:])[0, -1].astype(mx.float32)
    if isinstance(sampler, GreedySampler) and sampler.params.logprobs is None:
        return logits, mx.argmax(logits), mx.isfinite(logits).all()
    return (logits,)


def _sampled(outcome: Sequence[mx.array], sampler: Sampler) -> Sampled:
    """The token; logits go to the host only for other samplers than plain greedy ones, and when they are damaged."""
    logits, *chosen = outcome
    if chosen and chosen[1].item():
        return Sampled(int(np.array(chosen[0])))
    return sampler.sample(np.array(logits))


def run_prefill(
    memory: StepMemory, running: Running, slot: Slot, start: int, tokens: Sequence[int], sampler: Sampler | None
) -> Generator[Segment, None, Sampled | None]:
    """Evaluate one chunk; with a sampler, the last position's logits too, in a segment of their own."""
    memory.require(_need(running, StepKind.PREFILL, start, len(tokens)))
    if sampler is None:
        yield from _layers(running, slot, start, tokens)
        return None
    outcome = _outcome(running, (yield from _last_hidden(running, slot, start, tokens)), sampler)
    mx.eval(*outcome)
    return _sampled(outcome, sampler)


def run_decode(
    memory: StepMemory,
    running: Running,
    slots: Sequence[Slot],
    rows: Sequence[DecodeInput],
    samplers: Sequence[Sampler],
) -> Generator[Segment, None, tuple[Sampled, ...]]:
    """One token for each row, each by one evaluation; all in one segment."""
    for slot, row in zip(slots, rows, strict=True):
        memory.require(_need(running, StepKind.DECODE, row.position, 1))
        slot.check(row.position, 1)
    chosen = tuple(
        _decode_row(running, slot, row, sampler) for slot, row, sampler in zip(slots, rows, samplers, strict=True)
    )
    yield Segment(last=True)
    return chosen


def _decode_row(running: Running, slot: Slot, row: DecodeInput, sampler: Sampler) -> Sampled:
    ids = token_array([[row.token]], running.sizes.vocabulary)
    slot.begin(row.position, 1)
    try:
        outcome = _outcome(running, running.model.body(ids, slot.caches), sampler)
        for cache in slot.caches:
            cache.commit()
        _evaluate(slot, outcome)
        slot.filled = row.position + 1
    finally:
        slot.give_up()
    return _sampled(outcome, sampler)


def run_score(
    memory: StepMemory, running: Running, slot: Slot, start: int, tokens: Sequence[int], heads: Sequence[Head]
) -> Generator[Segment, None, tuple[float, ...]]:
    """Evaluate a decision row behind its instruction and give the heads' values; the row's positions don't stay."""
    memory.require(_need(running, StepKind.DECISION, start, len(tokens)))
    hidden = yield from _last_hidden(running, slot, start, tokens)
    slot.filled = start
    return head_values(running, hidden, heads)


def run_logits(running: Running, slot: Slot, start: int, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Evaluate one chunk and give all its logits, float32 ``(len(tokens), vocabulary)``."""
    layers = _layers(running, slot, start, tokens)
    while True:
        try:
            next(layers)
        except StopIteration as end:
            hidden: mx.array = end.value
            return np.array(running.model.head(hidden)[0].astype(mx.float32))


def run_warm(memory: StepMemory, resident: Resident) -> Generator[Segment, None, None]:
    """Run a chunk, a single token, decision rows and every head, so that no kernel is compiled later; slots are empty
    afterwards.
    """
    running, quiet = resident.loaded(), _Quiet()
    heads = tuple(resident.facts.heads.values())
    for role, slots in resident.slots.items():
        for slot in slots[:1]:
            tokens = [0] * min(resident.chunk, slot.capacity)
            slot.filled = 0
            if role == "generation":
                yield from run_prefill(memory, running, slot, 0, tokens, quiet)
                yield Segment()
                for sampler in (quiet, GreedySampler(SamplingParams())):
                    yield from run_decode(memory, running, [slot], [DecodeInput(0, 0, 0)], [sampler])
            else:
                yield from run_score(memory, running, slot, 0, tokens, heads)
                yield Segment()
                yield from _warm_rows(memory, running, slots[:2], tokens, heads)
            slot.filled = 0


def _warm_rows(
    memory: StepMemory, running: Running, slots: Sequence[Slot], tokens: Sequence[int], heads: Sequence[Head]
) -> Generator[Segment, None, None]:
    """Rows that together are as long as the chunk that was charged, behind an instruction of one token."""
    share = len(tokens) // len(slots)
    if share < 2:
        return
    for slot in slots:
        yield from run_prefill(memory, running, slot, 0, [0], None)
        yield Segment()
    rows = [DecisionRow(index, index, 1, tuple(tokens[1:share])) for index in range(len(slots))]
    yield from run_rows(memory, running, slots, rows, heads)
    for slot in slots:
        slot.filled = 0


def _need(running: Running, kind: StepKind, start: int, tokens: int) -> int:
    return step_need(running.sizes, StepShape(kind, 1, tokens, start + tokens))


class _Quiet:
    """A sampler for steps whose result nobody wants."""

    def sample(self, logits: NDArray[np.float32]) -> Sampled:
        return Sampled(0)
