"""The matrices and vectors of a model as they are to lie on a device: their names, forms and cuts.

A matrix that is larger than one binding can hold is cut by rows; each piece is a matrix of its own, and its outputs
are the same. All small vectors of a layer share one piece, whose order ``vector_offsets`` gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from ...models.architecture import DecoderConfig
from ...models.heads import Head, LinearHead, VerbalizerHead
from .arena import Piece
from .dispatches import Matrix
from .facts import VulkanFacts
from .formats import parts, resident_format
from .limits import Limits

ROWS = 8
"""Rows of a matrix are padded to this, and pieces begin at multiples of it."""

GRAIN = 64 << 10
"""What drivers round an allocation up to, at most."""

HEADS = "heads"
FINAL = "final"
VECTORS = ("attention_norm", "mlp_norm", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm")


@attrs.frozen
class Cut:
    """Rows ``first ...`` of a matrix in one piece of memory for each of its parts."""

    name: str
    first: int
    matrix: Matrix

    def pieces(self) -> tuple[Piece, ...]:
        """The parts' places in an arena, in the order in which kernels bind them."""
        found = parts(self.matrix.format, self.matrix.rows, self.matrix.inputs)
        return tuple(Piece(f"{self.name}.{part.name}", part.bytes) for part in found)


@attrs.frozen
class Product:
    """A matrix ``(rows, inputs)`` in a resident form, with its cuts in order."""

    name: str
    rows: int
    inputs: int
    cuts: tuple[Cut, ...]


def largest_piece(limits: Limits) -> int:
    """Bytes of the largest piece and block: the device's largest, less what a driver may round it up by."""
    return limits.block // GRAIN * GRAIN or limits.block


def cut(name: str, form: str, rows: int, inputs: int, limits: Limits) -> Product:
    """The fewest pieces that one binding can hold each; a matrix whose rows are too long stays too large."""
    most = min(_rows_of(part.bytes, part.texel_bytes, limits) for part in parts(form, ROWS, inputs))
    step = max(ROWS, most)
    cuts = tuple(
        Cut(f"{name}[{first}]", first, Matrix(form, min(step, rows - first), inputs)) for first in range(0, rows, step)
    )
    return Product(name, rows, inputs, cuts)


def _rows_of(eight: int, texel: int, limits: Limits) -> int:
    """Rows that fit where ``ROWS`` of them take ``eight`` bytes."""
    return min(largest_piece(limits), limits.texel_bytes(texel)) // eight * ROWS


def products(facts: VulkanFacts, limits: Limits) -> Iterator[Product]:
    """Every matrix of the model, in the order of a step, and its heads' rows last."""
    config = facts.config
    for name, shape in config.tensor_shapes().items():
        if len(shape) > 1:
            yield cut(name, resident_format(facts.stored[name]), shape[0], shape[1], limits)
    rows = len(head_rows(facts.heads.values()))
    if rows:
        yield cut(HEADS, "f32", rows, config.hidden, limits)


def head_rows(heads: Iterable[Head]) -> list[tuple[str, int | None]]:
    """The rows of the heads' matrix: a linear head's weights ``(name, None)``, or a token's row of the output matrix.

    A verbalizer head that compares with all other tokens needs every logit, and has no rows here.
    """
    rows: list[tuple[str, int | None]] = []
    for head in heads:
        if isinstance(head, LinearHead):
            rows.append((head.name, None))
        elif head.negative:
            rows += [(head.name, token) for token in (*head.positive, *head.negative)]
    return rows


def head_places(heads: Iterable[Head]) -> dict[str, slice]:
    """Which rows of the heads' matrix are whose."""
    places, at = {}, 0
    for head in heads:
        count = len(head_rows([head]))
        places[head.name] = slice(at, at + count)
        at += count
    return places


def needs_all(head: Head) -> bool:
    """Whether a head is told from the logits of the whole vocabulary."""
    return isinstance(head, VerbalizerHead) and not head.negative


def vector_offsets(config: DecoderConfig) -> Mapping[str, int]:
    """Where a layer's vectors begin in their common piece, in floats; ``end`` is its length."""
    shapes = config.layer_shapes()
    offsets, at = {}, 0
    for name in VECTORS:
        if name in shapes:
            offsets[name] = at
            at += shapes[name][0]
    return {**offsets, "end": at}


def weight_pieces(facts: VulkanFacts, limits: Limits) -> tuple[Piece, ...]:
    """Every piece of a model's weights."""
    pieces = [piece for product in products(facts, limits) for each in product.cuts for piece in each.pieces()]
    width = 4 * vector_offsets(facts.config)["end"]
    pieces += [Piece(vectors_of(layer), width) for layer in range(facts.config.layers)]
    return (*pieces, Piece(FINAL, 4 * facts.config.hidden))


def vectors_of(layer: int) -> str:
    """The name of a layer's vectors."""
    return f"layers.{layer}.vectors"
