"""The decoder: one chunk of one sequence through the layers, one atom of work at a time.

``chunk_layers`` is a generator that yields between two atoms. A prefill chunk, a decision row and a decode row (a
chunk of one position) run through the same code; a decode step with several rows advances them side by side, so that
each weight is fetched once for all of them. There is no loop over heads or positions: attention goes by pieces of KV
heads and query rows whose sizes are in ``shapes``. Every array comes from the step's workspace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import InvalidRequest
from ...models.architecture import DecoderConfig
from .cache import Slot
from .layout import Array, LayerWeights, ModelWeights
from .shapes import ATOM_OPERATIONS, ChunkShape, Shape
from .workspace import ScratchWorkspace, aligned

ONE = np.float32(1)
HALF = np.float32(0.5)
LOWEST_ROWS = 16


@attrs.frozen(eq=False)
class Chunk:
    """The arrays of one chunk in the step's workspace (sizes: ``ChunkShape``); attention's and the MLP's overlap."""

    shape: ChunkShape
    hidden: Array
    normed: Array
    squares: Array
    rotation: NDArray[np.complex64]
    future: NDArray[np.bool_] | None
    qkv: Array
    query: Array
    most: Array
    sums: Array
    scores: Array
    gate: Array
    up: Array


def open_chunk(workspace: ScratchWorkspace, weights: ModelWeights, shape: ChunkShape, tokens: Sequence[int]) -> Chunk:
    """Take a chunk's arrays, look its tokens up in the embedding, and compute its rotation.

    Raises:
        InvalidRequest: a token is outside the vocabulary.
        BudgetExceeded: the step was charged for a smaller shape.
    """
    arrays = {name: workspace.take(size, kind) for name, (size, kind) in shape.whole().items()}
    ids, arena = arrays.pop("ids"), arrays.pop("arena")
    ids[:] = tokens
    if ids.min() < 0 or ids.max() >= shape.config.vocabulary:
        bad = int(ids.min()) if ids.min() < 0 else int(ids.max())
        why = f"the vocabulary has {shape.config.vocabulary} tokens"
        raise InvalidRequest(f"token {bad} cannot be looked up: {why}", token=bad, vocabulary=shape.config.vocabulary)
    # Any mode but "raise" writes straight to out; the range is checked above.
    np.take(weights.embedding, ids, axis=0, out=arrays["hidden"], mode="clip")
    _rotation(shape, weights.frequencies, arena, arrays["rotation"])
    future = arrays.pop("future", None)
    if future is not None:
        positions = np.arange(len(future))
        np.greater(positions[None, :], positions[:, None], out=future)
    return Chunk(shape=shape, future=future, **arrays, **_split(arena, shape.attention()), **_split(arena, shape.mlp()))


def _split(arena: NDArray[np.uint8], shapes: dict[str, Shape]) -> dict[str, Any]:
    arrays, start = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        arrays[name] = arena[start : start + size].view(np.float32).reshape(shape)
        start += aligned(size)
    return arrays


def _rotation(
    shape: ChunkShape, frequencies: NDArray[np.float64], arena: NDArray[np.uint8], rotation: NDArray[np.complex64]
) -> None:
    """Unit complex numbers ``(tokens, 1, head_dim / 2)``; angles in float64, as float32 loses them at long contexts."""
    size = 8 * shape.tokens * len(frequencies)
    angles = arena[:size].view(np.float64).reshape(shape.tokens, len(frequencies))
    positions = np.arange(shape.start, shape.context, dtype=np.float64)
    np.multiply(positions[:, None], frequencies, out=angles)
    np.cos(angles, out=rotation.real[:, 0], casting="same_kind")
    np.sin(angles, out=rotation.imag[:, 0], casting="same_kind")


def chunk_layers(chunk: Chunk, weights: ModelWeights, slot: Slot) -> Iterator[None]:
    """Run all layers, writing keys and values of the chunk's positions to the slot; yields between atoms."""
    first = True
    for layer, keys, values in zip(weights.layers, slot.keys, slot.values, strict=True):
        stages = (
            _project(chunk, layer, keys, values, weights.config),
            _attend(chunk, keys, values),
            _output(chunk, layer),
            _gate(chunk, layer, weights.config.eps),
            _up(chunk, layer),
            _down(chunk, layer),
        )
        for stage in stages:
            if not first:
                yield
            first = False
            yield from stage


def _project(chunk: Chunk, layer: LayerWeights, keys: Array, values: Array, config: DecoderConfig) -> Iterator[None]:
    """Queries to the chunk, keys and values to their positions in the slot."""
    shape = chunk.shape
    rms_norm(chunk.hidden, layer.attention_norm, config.eps, chunk.normed, chunk.squares[:, 0])
    yield from _product(chunk.normed, layer.qkv, chunk.qkv)
    if layer.qkv_bias is not None:
        np.add(chunk.qkv, layer.qkv_bias, out=chunk.qkv)
    heads = chunk.qkv.reshape(shape.tokens, -1, config.head_dim)
    query, key, value = np.split(heads, [config.heads, config.heads + config.kv_heads], axis=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        rms_norm(query, layer.q_norm, config.eps, query, chunk.squares)
        rms_norm(key, layer.k_norm, config.eps, key, chunk.squares[:, : config.kv_heads])
    rotated = chunk.query.transpose(1, 0, 2, 3).view(np.complex64)
    grouped = query.view(np.complex64).reshape(rotated.shape)
    np.multiply(grouped, chunk.rotation[:, None], out=rotated)
    new = slice(shape.start, shape.context)
    np.multiply(key.view(np.complex64), chunk.rotation, out=keys[:, new].transpose(1, 0, 2).view(np.complex64))
    values[:, new] = value.transpose(1, 0, 2)


def _attend(chunk: Chunk, keys: Array, values: Array) -> Iterator[None]:
    """Causal attention by pieces; the result replaces the queries, not yet divided by the sums."""
    shape = chunk.shape
    rows, heads = shape.query_rows(), shape.kv_heads()
    for first in range(0, shape.config.kv_heads, heads):
        some = slice(first, min(first + heads, shape.config.kv_heads))
        for row in range(0, shape.tokens, rows):
            if first or row:
                yield
            _attend_piece(chunk, keys[some], values[some], some, slice(row, min(row + rows, shape.tokens)))


def _attend_piece(chunk: Chunk, keys: Array, values: Array, heads: slice, rows: slice) -> None:
    """Query rows ``rows`` of KV heads ``heads`` against every position that the last of these rows sees."""
    shape = chunk.shape
    seen = shape.start + rows.stop
    count = rows.stop - rows.start
    queries = chunk.query[heads, rows].reshape(len(keys), count * shape.group, -1)
    scores = chunk.scores[: len(keys) * queries.shape[1] * seen].reshape(len(keys), queries.shape[1], seen)
    if count == 1:
        # One position: a product per query head is a matrix-vector product, which runs at memory speed.
        np.matmul(queries[:, :, None], keys[:, None, :seen].swapaxes(2, 3), out=scores[:, :, None])
    else:
        np.matmul(queries, keys[:, :seen].swapaxes(1, 2), out=scores)
    grouped = scores.reshape(len(keys), count, shape.group, seen)
    if chunk.future is not None:
        hidden = chunk.future[:count, None, :count]
        np.copyto(grouped[..., shape.start + rows.start :], -np.inf, where=hidden)
    most, sums = chunk.most[heads, rows], chunk.sums[heads, rows]
    np.max(grouped, axis=-1, keepdims=True, out=most)
    np.subtract(grouped, most, out=grouped)
    np.exp(grouped, out=grouped)
    np.sum(grouped, axis=-1, keepdims=True, out=sums)
    np.matmul(scores, values[:, :seen], out=queries)


def _output(chunk: Chunk, layer: LayerWeights) -> Iterator[None]:
    """Divide by the softmax sums while putting heads side by side, and add the output projection."""
    shape = chunk.shape
    width = shape.config.q_width
    # The projections are spent: their memory takes the result, position by position.
    joined = chunk.qkv.reshape(-1)[: shape.tokens * width].reshape(shape.tokens, width)
    by_head = joined.reshape(shape.tokens, shape.config.kv_heads, shape.group, -1)
    np.divide(chunk.query, chunk.sums, out=by_head.transpose(1, 0, 2, 3))
    yield from _product(joined, layer.o, chunk.normed)
    np.add(chunk.hidden, chunk.normed, out=chunk.hidden)


def _gate(chunk: Chunk, layer: LayerWeights, eps: float) -> Iterator[None]:
    """``silu(gate(x))``; its sigmoid is built where ``up`` goes afterwards."""
    gate, up = chunk.gate, chunk.up
    rms_norm(chunk.hidden, layer.mlp_norm, eps, chunk.normed, chunk.squares[:, 0])
    yield from _product(chunk.normed, layer.gate, gate)
    # sigmoid(x) = (1 + tanh(x / 2)) / 2 can't overflow.
    np.multiply(gate, HALF, out=gate)
    np.tanh(gate, out=up)
    np.add(up, ONE, out=up)
    np.multiply(gate, up, out=gate)


def _up(chunk: Chunk, layer: LayerWeights) -> Iterator[None]:
    """``silu(gate(x)) * up(x)``, in place of the gate."""
    yield from _product(chunk.normed, layer.up, chunk.up)
    np.multiply(chunk.gate, chunk.up, out=chunk.gate)


def _down(chunk: Chunk, layer: LayerWeights) -> Iterator[None]:
    """Add the projection back to the hidden state."""
    yield from _product(chunk.gate, layer.down, chunk.normed)
    np.add(chunk.hidden, chunk.normed, out=chunk.hidden)


def _product(inputs: Array, matrix: Array, out: Array) -> Iterator[None]:
    """``out = inputs @ matrix`` in pieces of rows that depend on the sizes alone; yields between them."""
    rows = len(inputs)
    most = max(LOWEST_ROWS, ATOM_OPERATIONS // (2 * matrix.size))
    step = -(-rows // -(-rows // most))
    for row in range(0, rows, step):
        if row:
            yield
        np.matmul(inputs[row : row + step], matrix, out=out[row : row + step])


def rms_norm(values: Array, weight: Array, eps: float, out: Array, squares: Array) -> None:
    """``values / rms(values) * weight`` over the last axis; ``squares`` is scratch shaped like the other axes."""
    np.matmul(values[..., None, :], values[..., :, None], out=squares[..., None, None])
    np.divide(squares, np.float32(values.shape[-1]), out=squares)
    np.add(squares, np.float32(eps), out=squares)
    np.sqrt(squares, out=squares)
    np.divide(values, squares[..., None], out=out)
    np.multiply(out, weight, out=out)


def last_hidden(chunk: Chunk, weights: ModelWeights) -> Array:
    """The last position's normalized hidden state, float32 ``(hidden,)``, in the chunk's memory."""
    rms_norm(chunk.hidden[-1:], weights.final_norm, weights.config.eps, chunk.normed[:1], chunk.squares[:1, 0])
    last: Array = chunk.normed[0]
    return last
