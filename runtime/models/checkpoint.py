"""The form every model file takes before a backend lays its weights out.

A checkpoint knows its sizes from metadata alone. Weights are read tensor by tensor, a bounded block of rows at a
time, as float32, whatever the file stores; a backend copies the blocks to where it wants them, so nothing is held
twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from .architecture import DecoderConfig, invalid

BLOCK_ELEMENTS = 1 << 20

RowIndex = NDArray[np.intp]
ReadRows = Callable[[RowIndex], NDArray[np.float32]]
ReadPacked = Callable[[slice], NDArray[np.uint8]]


@attrs.frozen
class Tensor:
    """A named tensor of a file. ``read`` gives the rows (first axis) of an index array as float32, dequantized.

    ``packed`` gives a range of rows as the file has them, ``stored`` says how: uint8 ``(rows, bytes of a row)``, not
    permuted. ``order`` permutes rows on the way: row ``i`` of the tensor is row ``order[i]`` of the file.
    """

    name: str
    shape: tuple[int, ...]
    stored: str
    read: ReadRows
    packed: ReadPacked
    order: RowIndex | None = None

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Every row once, in order, as ``(rows, float32 values)`` with at most about a million values at a time."""
        rows = self.shape[0]
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        step = max(1, BLOCK_ELEMENTS // max(1, width))
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            index = np.arange(start, stop) if self.order is None else self.order[start:stop]
            yield slice(start, stop), self.read(index)

    def copy_to(self, target: NDArray[np.float32]) -> None:
        """Write the values to ``target`` (same shape, any strides)."""
        for rows, values in self.blocks():
            target[rows] = values


@attrs.frozen
class Checkpoint:
    """A model file: its config, tensors by the names of ``DecoderConfig.tensor_shapes``, and raw metadata.

    ``interleaved`` says that rotary pairs are neighbouring rows of q and k (GGUF's Llama files) instead of the two
    halves of a head. ``rope_factors`` divide the rotary frequencies, one per pair. ``metadata`` is the format's own
    (tokenizer included). ``digest`` is the SHA-256 of the weights and geometry, in hexadecimal.
    """

    label: str
    config: DecoderConfig
    tensors: Mapping[str, Tensor]
    stop_tokens: tuple[int, ...]
    digest: str
    interleaved: bool
    path: str | None
    metadata: Mapping[str, Any]
    rope_factors: NDArray[np.float64] | None = None


def check_tensors(config: DecoderConfig, tensors: Mapping[str, Tensor], file: str) -> None:
    """Refuse missing, misshapen and unknown tensors: each would make the numbers wrong.

    Raises:
        ArtifactInvalid: naming the first such tensor.
    """
    expected = config.tensor_shapes()
    for name, shape in expected.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise invalid(file, f"tensor {name}", "missing", f"a {config.architecture} model needs it, shaped {shape}")
        if tensor.shape != shape:
            raise invalid(
                file, f"shape of tensor {tensor.name}", tensor.shape, f"the sizes in its metadata ask for {shape}"
            )
    for name in sorted(tensors.keys() - expected.keys()):
        raise invalid(file, "tensor", name, f"a {config.architecture} model with these settings has no such tensor")


_digests: dict[tuple[str, int, int], str] = {}
_digests_lock = Lock()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, computed once for a path, size and modification time."""
    status = path.stat()
    key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    with _digests_lock:
        known = _digests.get(key)
    if known is None:
        with path.open("rb") as file:
            known = hashlib.file_digest(file, "sha256").hexdigest()
        with _digests_lock:
            _digests[key] = known
    return known
