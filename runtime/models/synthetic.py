"""The default checkpoint: a small untrained Llama whose weights come from a documented generator.

Generator: for every tensor in the order of ``DecoderConfig.tensor_shapes``, NumPy's counter-based ``Philox`` bit
generator with ``key=(SEED, position of the tensor)`` gives one 64-bit word per value, row by row. The upper 24 bits
``u`` make the float32 ``(u / 2**23 - 1) * scale`` with ``scale = sqrt(3 / inputs)`` for matrices (unit output
variance) and ``sqrt(3) / 4`` for the embedding; norm weights are ones. Raw words, unlike NumPy's distributions, are
promised never to change.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .architecture import DecoderConfig, Rope
from .checkpoint import Checkpoint, RowIndex, Tensor

SEED = 20240607

CONFIG = DecoderConfig(
    architecture="llama",
    hidden=64,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=16,
    mlp=128,
    vocabulary=256,
    eps=1e-5,
    rope=Rope(theta=10000.0),
    tied=True,
    context_limit=65536,
)


@cache
def synthetic_checkpoint() -> Checkpoint:
    """The synthetic checkpoint: every byte is a token and none of them stops a sequence. About 0.5 MB."""
    digest = hashlib.sha256(repr(CONFIG).encode())
    tensors = {}
    for position, (name, shape) in enumerate(CONFIG.tensor_shapes().items()):
        values = _values(name, shape, position)
        digest.update(name.encode() + values.tobytes())
        tensors[name] = _tensor(name, values)
    return Checkpoint(
        label="synthetic checkpoint (untrained llama, 3 layers, bytes as tokens)",
        config=CONFIG,
        tensors=tensors,
        stop_tokens=(),
        digest=digest.hexdigest(),
        interleaved=False,
        path=None,
        metadata={"coresident.synthetic": SEED},
    )


def _values(name: str, shape: tuple[int, ...], position: int) -> NDArray[np.float32]:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    key = np.array([SEED, position], np.uint64)
    words = np.random.Philox(key=key).random_raw(shape[0] * shape[1])
    unit = (words >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    scale = 3**0.5 / 4 if name == "embedding" else (3 / shape[1]) ** 0.5
    return (unit * np.float32(scale)).reshape(shape)


def _tensor(name: str, values: NDArray[np.float32]) -> Tensor:
    def read(rows: RowIndex) -> NDArray[np.float32]:
        return values[rows]

    def packed(rows: slice) -> NDArray[np.uint8]:
        return values[rows].reshape(len(values[rows]), -1).view(np.uint8)

    return Tensor(name, values.shape, "F32", read, packed)
