"""Where everything of a model lies, as arithmetic: its weights, and the transient arrays of its steps by class.

A class rounds a step's shape up, so that few regions serve all steps: tokens to a multiple of 8, the context to a
power of two, the rows of logits to 1, 4 or 8. Numbers never depend on the class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import attrs

from ....actors.work import StepKind, StepShape
from ...models.architecture import DecoderConfig
from .arena import Packing, Piece, pack
from .attending import Attention
from .facts import VulkanFacts
from .limits import Limits
from .parameters import StepLayout
from .products import HEADS, head_rows, largest_piece, vector_offsets, weight_pieces
from .ranking import RECORD, partial_bytes

TILE = 8
COLUMNS = 8
"""Columns of a row are padded to this."""

LEAST_CONTEXT = 256
LANE_BYTES = 1 << 20
LIKELIEST = 20
"""Results of one row of logits: the likeliest tokens in order, and behind them the sum of exponentials."""

Strides: TypeAlias = dict[str, int]
Requirement: TypeAlias = Callable[[int], int]
"""Bytes that an allocation of so many takes."""


@attrs.frozen
class RegionClass:
    """``tokens`` of one step up to ``context``; attention takes ``tile`` of them at a time."""

    tokens: int
    context: int
    tile: int
    logit_rows: int


@attrs.define(eq=False, slots=False)
class Layouts:
    """Where a model's weights lie, and what its steps have in common: strides in floats, attention, array sizes."""

    facts: VulkanFacts
    limits: Limits
    requirement: Requirement
    _bytes: dict[RegionClass, int] = attrs.field(factory=dict, init=False)

    @property
    def config(self) -> DecoderConfig:
        return self.facts.config

    @cached_property
    def attention(self) -> Attention:
        config, at = self.config, vector_offsets(self.config)
        return Attention(
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            interleaved=self.facts.interleaved,
            eps=config.eps,
            bias_at=at.get("q_bias"),
            q_norm_at=at.get("q_norm"),
            k_norm_at=at.get("k_norm"),
        )

    @cached_property
    def strides(self) -> Strides:
        """Floats from one row of an array to the next."""
        config = self.config
        widths = {
            "hidden": config.hidden,
            "normed": config.hidden,
            "qkv": config.q_width + 2 * config.kv_width,
            "joined": config.q_width,
            "gate": config.mlp,
            "up": config.mlp,
            "logits": config.vocabulary,
            HEADS: self.head_rows,
        }
        return {name: -(-width // COLUMNS) * COLUMNS for name, width in widths.items()}

    @cached_property
    def weights(self) -> Packing:
        """Where the weights lie."""
        return pack(weight_pieces(self.facts, self.limits), largest_piece(self.limits), self.limits.alignment)

    @cached_property
    def head_rows(self) -> int:
        """Rows of the heads' matrix."""
        return len(head_rows(self.facts.heads.values()))

    @cached_property
    def layer_operations(self) -> int:
        """Multiply-adds of one layer's products for one token."""
        return sum(math.prod(shape) for shape in self.config.layer_shapes().values() if len(shape) > 1)

    def class_of(self, kind: StepKind, rows: int, tokens: int, context: int) -> RegionClass:
        """The class of a step; no smaller step has a class with a larger array."""
        pow2 = max(LEAST_CONTEXT, 1 << (max(1, context) - 1).bit_length())
        if kind is StepKind.DECODE:
            return RegionClass(-(-rows // TILE) * TILE, pow2, 1, 1 if rows == 1 else 4 if rows <= 4 else TILE)
        many = 4 * self.attention.score_floats(TILE, pow2) <= largest_piece(self.limits)
        return RegionClass(-(-tokens // TILE) * TILE, pow2, TILE if many else 1, 1)

    def lanes(self, form: RegionClass) -> int:
        """How many tiles may be in attention at once, a power of two: a longer context never takes less memory."""
        room = min(LANE_BYTES, largest_piece(self.limits))
        most = min(form.tokens // form.tile, room // self.lane_bytes(form))
        return 1 << max(0, most.bit_length() - 1)

    def lane_bytes(self, form: RegionClass) -> int:
        """Bytes of the scores of one tile."""
        return self.limits.aligned(4 * self.attention.score_floats(form.tile, form.context))

    def sum_bytes(self, form: RegionClass) -> int:
        """Bytes of the softmax sums of one tile."""
        return self.limits.aligned(4 * self.attention.sum_floats(form.tile))

    def arrays(self, form: RegionClass) -> tuple[Piece, ...]:
        """Device arrays of a region."""
        strides, tokens = self.strides, form.tokens
        rows = ("hidden", "normed", "qkv", "joined", "gate", "up")
        pieces = [Piece(name, 4 * tokens * strides[name]) for name in rows]
        pieces.append(Piece("query", 4 * self.attention.query_floats(tokens, form.tile)))
        pieces.append(Piece("scores", self.lanes(form) * self.lane_bytes(form)))
        pieces.append(Piece("sums", self.lanes(form) * self.sum_bytes(form)))
        pieces.append(Piece("logits", 4 * form.logit_rows * strides["logits"]))
        pieces.append(Piece("partial", form.logit_rows * self.partial_bytes))
        pieces.append(Piece("result", form.logit_rows * self.result_bytes))
        if self.head_rows:
            pieces.append(Piece(HEADS, 4 * strides[HEADS]))
        return tuple(pieces)

    @cached_property
    def partial_bytes(self) -> int:
        """Bytes that ranking one row of logits takes on its way."""
        return self.limits.aligned(partial_bytes(self.config.vocabulary))

    @cached_property
    def result_bytes(self) -> int:
        """Bytes of the results of one row of logits."""
        return self.limits.aligned((LIKELIEST + 1) * RECORD)

    def packing(self, form: RegionClass) -> Packing:
        """Where a region's device arrays lie."""
        return pack(self.arrays(form), largest_piece(self.limits), self.limits.alignment)

    def parameters(self, form: RegionClass) -> StepLayout:
        """What the host writes for each step."""
        return StepLayout(form.tokens, self.config.head_dim)

    def host_bytes(self, form: RegionClass) -> int:
        """Bytes of a region's buffer in the host's sight: parameters, then logits, results and head values."""
        back = self.heads_back_at(form) + 4 * self.strides[HEADS]
        return self.limits.aligned(self.parameters(form).bytes) + back

    def region_bytes(self, form: RegionClass) -> int:
        """Bytes that a region of this class allocates."""
        if form not in self._bytes:
            blocks = (*self.packing(form).blocks, self.host_bytes(form))
            self._bytes[form] = sum(self.requirement(block) for block in blocks)
        return self._bytes[form]

    def logits_back_at(self, row: int) -> int:
        """Where a row of logits comes back, in bytes behind the parameters."""
        return 4 * row * self.strides["logits"]

    def result_back_at(self, form: RegionClass, row: int) -> int:
        """Where the results of a row of logits come back."""
        return self.logits_back_at(form.logit_rows) + row * self.result_bytes

    def heads_back_at(self, form: RegionClass) -> int:
        """Where the heads' values come back."""
        return self.result_back_at(form, form.logit_rows)


def class_for(layouts: Layouts, shape: StepShape) -> tuple[RegionClass, ...]:
    """The classes that a step of this shape, or any smaller one, may take; it takes one at a time."""
    tokens, context = max(1, min(shape.tokens, shape.context)), max(1, shape.context)
    if shape.kind is StepKind.WARMUP:
        few = layouts.class_of(StepKind.DECODE, TILE, 1, context)
        return layouts.class_of(StepKind.PREFILL, 1, tokens, context), few
    if shape.kind in (StepKind.PREFILL, StepKind.DECODE, StepKind.DECISION):
        return (layouts.class_of(shape.kind, shape.rows, tokens, context),)
    return ()
