"""Raw head values from a decision row's last hidden state, on the device; ``models.heads`` has the formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from ....actors.errors import BackendFault
from ...models.heads import Head, LinearHead, VerbalizerHead
from .resident import Running


def head_values(running: Running, hidden: mx.array, heads: Sequence[Head]) -> tuple[float, ...]:
    """Values of all heads from the normalized hidden state ``(1, 1, hidden)`` by one evaluation, in float32.

    Raises:
        BackendFault: a value is not finite; a score must never be a guess.
    """
    if not heads:
        return ()
    logits: mx.array | None = None
    if any(isinstance(head, VerbalizerHead) for head in heads):
        logits = running.model.head(hidden)[0, -1].astype(mx.float32)
    lazy = [_value(running, hidden[0, -1].astype(mx.float32), logits, head) for head in heads]
    values = tuple(np.array(mx.stack(lazy), np.float64).tolist())
    for head, value in zip(heads, values, strict=True):
        if not math.isfinite(value):
            raise BackendFault(
                f"head {head.name!r} gives {value}: the model's weights or the backend are damaged", head=head.name
            )
    return values


def _value(running: Running, hidden: mx.array, logits: mx.array | None, head: Head) -> mx.array:
    if isinstance(head, LinearHead) or logits is None:
        return (running.linear[head.name] * hidden).sum() + (head.bias if isinstance(head, LinearHead) else 0.0)
    positive = mx.array(head.positive)
    if head.negative:
        others = logits[mx.array(head.negative)]
    else:
        others = mx.put_along_axis(logits, positive, mx.array(-mx.inf), axis=0)
    return mx.logsumexp(logits[positive]) - mx.logsumexp(others)
