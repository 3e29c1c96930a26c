"""Raw head values from the last hidden state of a decision row (the formulas are in ``models.heads``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...models.architecture import DecoderConfig
from ...models.heads import Head, LinearHead, VerbalizerHead, logsumexp
from .layout import Array, ModelWeights
from .workspace import ScratchWorkspace, aligned


def heads_bytes(config: DecoderConfig, heads: Iterable[Head]) -> int:
    """Workspace that the hungriest of these heads takes; heads are evaluated one after the other."""
    return max((_head_bytes(config, head) for head in heads), default=0)


def _head_bytes(config: DecoderConfig, head: Head) -> int:
    if isinstance(head, LinearHead):
        return 0
    if not head.negative:
        return aligned(4 * config.vocabulary)
    return sum(_set_bytes(config, len(tokens)) for tokens in (head.positive, head.negative))


def _set_bytes(config: DecoderConfig, tokens: int) -> int:
    return aligned(4 * tokens * config.hidden) + aligned(4 * tokens)


def head_value(workspace: ScratchWorkspace, weights: ModelWeights, hidden: Array, head: Head) -> float:
    """The head's raw value for one row, computed from that row alone."""
    mark = workspace.mark()
    try:
        if isinstance(head, LinearHead):
            return float(np.dot(head.weight, hidden)) + head.bias
        if not head.negative:
            return _against_all_others(workspace, weights, hidden, head)
        positive = _set_logits(workspace, weights, hidden, head.positive)
        return logsumexp(positive) - logsumexp(_set_logits(workspace, weights, hidden, head.negative))
    finally:
        workspace.release(mark)


def _set_logits(workspace: ScratchWorkspace, weights: ModelWeights, hidden: Array, tokens: Sequence[int]) -> Array:
    """Logits of a few tokens: only their rows of the output matrix are multiplied."""
    rows: Array = workspace.take((len(tokens), weights.config.hidden))
    logits: Array = workspace.take((len(tokens),))
    np.take(weights.output, np.asarray(tokens), axis=0, out=rows, mode="clip")
    np.matmul(rows, hidden, out=logits)
    return logits


def _against_all_others(
    workspace: ScratchWorkspace, weights: ModelWeights, hidden: Array, head: VerbalizerHead
) -> float:
    logits: Array = workspace.take((weights.config.vocabulary,))
    np.matmul(weights.output, hidden, out=logits)
    chosen = list(head.positive)
    positive = logsumexp(logits[chosen])
    logits[chosen] = -np.inf
    return positive - logsumexp(logits)
