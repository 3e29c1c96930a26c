"""The workspace charge of a step, and MLX's own limits on memory.

The charge is an envelope: sums of array sizes of an unfused layer whose factors were measured on the CPU device (rows,
lengths and contexts swept over several model families), and a margin on top. Fused attention needs less. What steps
really take is measured after each segment, and more than the charge is reported as a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import mlx.core as mx

from ....actors.work import StepKind, StepShape
from .description import Sizes
from .planning import Limits

FIXED = 64 << 10
LIVE_ARRAYS = 16
"""Large arrays of a layer that live at once; each may take up to two pages more than it holds."""

CACHE_SHARE = 4
"""The part of the workspace budget, one in so many, that MLX may keep of freed buffers."""


def layer_need(sizes: Sizes, tokens: int, context: int) -> int:
    """Bytes that one layer takes for ``tokens`` positions of which the last is at ``context - 1``.

    Scores and what normalizes them are float32; a mask has a byte for each pair of positions.
    """
    q_width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    pairs = context * (4 * sizes.heads + 1)
    return tokens * (pairs + 4 * (7 * sizes.hidden + 4 * q_width + 3 * sizes.mlp + 5 * kv_width))


def output_need(sizes: Sizes) -> int:
    """Bytes of the last position's logits and of what chooses from them."""
    return 4 * (2 * sizes.vocabulary + 2 * sizes.hidden) + FIXED


def step_need(sizes: Sizes, shape: StepShape) -> int:
    """Bytes of a step; never less for a larger shape.

    A decode step is evaluated as a whole, so two layers may overlap; its rows follow one another. Decision rows are
    counted side by side, as unfused attention over a batch of them would take them.
    """
    context = max(1, shape.context)
    tokens = max(1, min(shape.tokens, context))
    output = output_need(sizes)
    needs = {
        StepKind.PREFILL: layer_need(sizes, tokens, context) + output,
        StepKind.DECODE: 2 * layer_need(sizes, 1, context) + output,
        StepKind.DECISION: shape.rows * decision_need(sizes, tokens, context) + output,
    }
    if shape.kind is StepKind.WARMUP:
        return max(needs.values())
    return needs.get(shape.kind, 0)


def decision_need(sizes: Sizes, tokens: int, context: int) -> int:
    """Bytes of one decision row of ``tokens`` positions behind its instruction, with two score matrices.

    A layer's keys and values of the whole context are copied to stand beside those of other rows.
    """
    batched = tokens * (8 * sizes.heads * context + 4 * (14 * sizes.hidden + 5 * sizes.mlp))
    return max(batched, layer_need(sizes, tokens, context)) + 2 * sizes.position_bytes * context


def step_charge(sizes: Sizes, shape: StepShape, margin: int, page: int) -> int:
    """The need with ``margin`` percent on top, and room for allocations that are rounded up to pages."""
    need = step_need(sizes, shape)
    return need + -(-need * margin // 100) + LIVE_ARRAYS * 2 * page if need else 0


@attrs.frozen
class MemoryPolicy:
    """What MLX is told of a partition and its workspace budget, in bytes; 0 leaves MLX as it is."""

    partition: int = 0
    workspace: int = 0

    def apply(self, device: Limits) -> None:
        """Bound what MLX keeps of freed buffers, and on Metal wire the partition, never above what is recommended."""
        if self.workspace:
            mx.set_cache_limit(self.workspace // CACHE_SHARE)
        if self.partition and device.recommended is not None:
            mx.set_wired_limit(min(self.partition, device.recommended))


@contextmanager
def nothing_cached() -> Iterator[None]:
    """Keep no freed buffers while memory is measured: one that is used again may be larger than what it holds."""
    before = mx.set_cache_limit(0)
    try:
        mx.clear_cache()
        yield
    finally:
        mx.set_cache_limit(before)
