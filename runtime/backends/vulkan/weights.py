"""Weights on a device: read a bounded piece at a time, packed, and copied to their places.

Nothing of a matrix is held twice: the file's own blocks are kept where the kernels read them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial

import attrs
import numpy as np
from numpy.typing import NDArray

from ...models.checkpoint import Checkpoint, Tensor
from ...models.heads import LinearHead
from ..contract import Segment
from .arena import Arena
from .device import Device
from .dispatches import Matrix
from .facts import VulkanFacts
from .formats import pack_rows, pack_values, parts, resident_format
from .functions import Handle
from .memory import Buffer
from .products import FINAL, HEADS, ROWS, VECTORS, Cut, Product, head_rows, products, vectors_of
from .set_cache import SetCache
from .shapes import Layouts
from .uploading import Uploader

Packed = dict[str, NDArray[np.uint8]]
Pack = Callable[[int, int], Packed]
"""Rows ``first`` to ``stop`` of a matrix in the resident form, by part."""


@attrs.frozen(eq=False)
class Weights:
    """A model's matrices and vectors in an arena, with the descriptor sets that were made of them."""

    facts: VulkanFacts
    products: Mapping[str, Product]
    arena: Arena
    sets: SetCache

    @classmethod
    def allocate(cls, device: Device, layouts: Layouts) -> Weights:
        """Room for every weight. Raises ``BudgetExceeded`` when the device has not enough."""
        facts = layouts.facts
        arena = Arena.allocate(device, layouts.weights, f"weights of {facts.description.label}")
        by_name = {product.name: product for product in products(facts, layouts.limits)}
        return cls(facts, by_name, arena, SetCache(device.sets(), 0))

    def of_matrix(self, kernel: str, cut: Cut) -> Handle:
        """Set 0 of a kernel that reads a piece of a matrix."""
        return self.sets.get(kernel, cut.name, lambda: [self.arena.at(piece.name) for piece in cut.pieces()])

    def of_vectors(self, kernel: str, name: str) -> Handle:
        """Set 0 of a kernel that reads vectors: a layer's, or the final norm."""
        return self.sets.get(kernel, name, lambda: [self.arena.at(name)])

    def free(self) -> None:
        """Give everything back; doing it again does nothing."""
        self.sets.free()
        self.arena.free()


def load_weights(
    device: Device, staging: Buffer, weights: Weights, checkpoint: Checkpoint
) -> Generator[Segment, None, None]:
    """Read, pack and upload every weight; a segment ends after each copy.

    Raises:
        ArtifactInvalid: a value is outside the range of the form that it is to be resident in.
    """
    upload = Uploader(device, staging)
    for product in weights.products.values():
        for cut in product.cuts:
            for _ in _upload_cut(upload, weights, cut, _packer(checkpoint, weights.facts, product, cut)):
                yield Segment()
    for name, values in _vectors(checkpoint):
        for _ in upload.put(weights.arena.at(name), 1, 0, values.view(np.uint8).reshape(-1, 1, 4)):
            yield Segment()
    upload.flush()
    yield Segment()


def _upload_cut(upload: Uploader, weights: Weights, cut: Cut, pack: Pack) -> Iterator[None]:
    """Slices of rows, about half of the staging buffer each."""
    matrix = cut.matrix
    eight = sum(part.bytes for part in parts(matrix.format, ROWS, matrix.inputs))
    step = max(1, upload.staging.size // 2 // eight) * ROWS
    for first in range(0, matrix.rows, step):
        packed = pack(cut.first + first, cut.first + min(first + step, matrix.rows))
        for part in parts(matrix.format, matrix.rows, matrix.inputs):
            yield from upload.put(weights.arena.at(f"{cut.name}.{part.name}"), matrix.padded, first, packed[part.name])


def _packer(checkpoint: Checkpoint, facts: VulkanFacts, product: Product, cut: Cut) -> Pack:
    if product.name == HEADS:
        return partial(_pack_heads, cut.matrix, head_matrix(checkpoint, facts))
    return partial(_pack_tensor, cut.matrix, checkpoint.tensors[product.name], checkpoint.path or checkpoint.label)


def _pack_heads(matrix: Matrix, values: NDArray[np.float32], first: int, stop: int) -> Packed:
    return pack_values(matrix.format, values[first:stop], HEADS)


def _pack_tensor(matrix: Matrix, tensor: Tensor, file: str, first: int, stop: int) -> Packed:
    where = f"{file}: tensor {tensor.name}"
    if matrix.format in ("f32", "f16"):
        return pack_values(matrix.format, tensor.read(np.arange(first, stop)), where)
    return pack_rows(matrix.format, tensor.stored, tensor.packed(slice(first, stop)), matrix.inputs, where)


def head_matrix(checkpoint: Checkpoint, facts: VulkanFacts) -> NDArray[np.float32]:
    """The rows that ``head_rows`` lists; a token's row has the values that the resident output matrix has."""
    output = checkpoint.tensors["embedding" if facts.config.tied else "output"]
    half = resident_format(output.stored) == "f16"
    rows = []
    for name, token in head_rows(facts.heads.values()):
        head = facts.heads[name]
        if token is None and isinstance(head, LinearHead):
            rows.append(head.weight)
            continue
        row = output.read(np.array([token], np.intp))[0]
        rows.append(row.astype(np.float16).astype(np.float32) if half else row)
    return np.stack(rows)


def _vectors(checkpoint: Checkpoint) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each layer's vectors in their common order, and the final norm."""
    shapes = checkpoint.config.layer_shapes()
    for layer in range(checkpoint.config.layers):
        names = [f"layers.{layer}.{name}" for name in VECTORS if name in shapes]
        yield vectors_of(layer), np.concatenate([_vector(checkpoint.tensors[name]) for name in names])
    yield FINAL, _vector(checkpoint.tensors["final_norm"])


def _vector(tensor: Tensor) -> NDArray[np.float32]:
    values = tensor.read(np.arange(tensor.shape[0]))
    return np.ascontiguousarray(values, np.float32)
