"""A model file as MLX is going to hold it: an empty model of mlx-lm's class, and the arrays that will fill it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from ...models.architecture import invalid

FLOATS = (mx.float32, mx.float16, mx.bfloat16)


@attrs.frozen
class WeightArray:
    """One array of a loaded model; ``bytes`` are those of its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], dtype: mx.Dtype) -> WeightArray:
        return cls(name, shape, dtype_name(dtype), math.prod(shape) * dtype.size)


@attrs.frozen(eq=False)
class Pending:
    """An array still to be read: ``read`` gives it, lazily or at once, in this shape and type."""

    shape: tuple[int, ...]
    dtype: mx.Dtype
    read: Callable[[], mx.array]


@attrs.frozen(eq=False)
class OpenedModel:
    """A model file that was opened, nothing of its weights read.

    ``model`` is mlx-lm's, its parameters of the right shapes and types but without values; ``pending`` has an entry
    for each of them. Belongs to the thread that opened it.
    """

    file: str
    label: str
    architecture: str
    digest: str
    context_limit: int
    vocabulary: int
    parameters: int
    stop_tokens: tuple[int, ...]
    path: str | None
    settings: Mapping[str, Any]
    model: Any
    pending: dict[str, Pending]


def dtype_name(dtype: mx.Dtype) -> str:
    """``float32`` for ``mx.float32``."""
    return str(dtype).removeprefix("mlx.core.")


def on_cpu() -> bool:
    """Whether MLX computes on the CPU in this process."""
    return bool(mx.default_device().type == mx.DeviceType.cpu)


def held_dtype(stored: mx.Dtype) -> mx.Dtype:
    """The type in which an array is held.

    On the CPU every float becomes float32: products in half precision are slow there, and quantized products whose
    scales are halves do not come to an end.
    """
    return mx.float32 if on_cpu() and stored in FLOATS else stored


def half_or_full() -> mx.Dtype:
    """The type in which GGUF files are computed: float32 on the CPU, float16 on a GPU."""
    return mx.float32 if on_cpu() else mx.float16


def check_arrays(model: Any, pending: Mapping[str, Pending], file: str) -> None:
    """Refuse missing, misshapen and unknown arrays: each would make the numbers wrong.

    Raises:
        ArtifactInvalid: naming the first such array.
    """
    expected = {name: tuple(array.shape) for name, array in dict(tree_flatten(model.parameters())).items()}
    for name, shape in expected.items():
        given = pending.get(name)
        if given is None:
            raise invalid(file, f"tensor {name}", "missing", f"the model needs it, shaped {shape}")
        if given.shape != shape:
            raise invalid(file, f"shape of tensor {name}", given.shape, f"the model's settings ask for {shape}")
    for name in sorted(pending.keys() - expected.keys()):
        raise invalid(file, "tensor", name, "a model with these settings has no such tensor")


def place(model: Any, arrays: Mapping[str, mx.array]) -> None:
    """Put arrays where a model has parameters of these names."""
    model.update(tree_unflatten(list(arrays.items())))


def blank(pending: Mapping[str, Pending]) -> dict[str, mx.array]:
    """Stand-ins of the right shapes and types, which are never evaluated."""
    return {name: mx.zeros(one.shape, one.dtype) for name, one in pending.items()}


def own_arrays(model: Any) -> dict[str, mx.array]:
    """Arrays that are no parameters, such as rotary periods; one that several modules share is listed once."""
    found: dict[int, tuple[str, mx.array]] = {}
    for path, module in model.named_modules():
        for key, value in module.items():
            if key.startswith("_") and isinstance(value, mx.array):
                found.setdefault(id(value), (f"{path}.{key}", value))
    return dict(found.values())
