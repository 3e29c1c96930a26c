"""What a model asks of its caches, found by running one token through it lazily: nothing is evaluated.

So every class of mlx-lm is served that asks each layer's cache once, for keys and values of one size, and returns
hidden states; the others are refused here and not in the middle of a step.
"""

from __future__ import annotations

from typing import Any

import attrs
import mlx.core as mx

from ....actors.errors import ArtifactInvalid
from ...models.architecture import invalid

BODIES = ("model", "language_model", "transformer", "backbone")
DEPTH = 4
KNOWN_CACHES = ("KVCache", "RotatingKVCache")


@attrs.frozen
class Traced:
    """Sizes that every layer's cache has, and each layer's window (``None``: the whole context).

    ``dtype`` is that of keys and values, and of the hidden states.
    """

    hidden: int
    kv_heads: int
    head_dim: int
    dtype: mx.Dtype
    windows: tuple[int | None, ...]


@attrs.define(eq=False)
class _Probe:
    """Stands in for a layer's cache and notes what it is asked to keep."""

    window: int | None
    asked: list[tuple[tuple[int, ...], tuple[int, ...], mx.Dtype]] = attrs.field(factory=list)
    offset: int = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.asked.append((tuple(keys.shape), tuple(values.shape), keys.dtype))
        return keys, values

    def make_mask(self, *_: Any, window_size: int | None = None, **__: Any) -> None:
        """One token sees all there is; a window must be the one that the layer's own cache has."""
        if window_size is not None and window_size != self.window:
            raise ValueError(f"a mask with a window of {window_size} is asked of a cache with {self.window}")


def body_of(model: Any, file: str) -> tuple[Any, str]:
    """The module that owns the stack of layers: its parent, and its name there.

    Raises:
        ArtifactInvalid: the class has no such module.
    """
    parent = model
    for _ in range(DEPTH):
        name = next((name for name in BODIES if hasattr(parent, name)), None)
        if name is None:
            break
        inner = getattr(parent, name)
        if isinstance(inner, dict) and isinstance(inner.get("layers"), list):
            return parent, name
        parent = inner
    kind = type(model).__module__.rpartition(".")[2]
    raise invalid(file, "model_type", kind, "its class is not a stack of layers behind one embedding")


def trace(model: Any, file: str) -> Traced:
    """Run one token through the body with probes for caches.

    Raises:
        ArtifactInvalid: the class keeps other state than keys and values, or not the same in every layer.
    """
    parent, name = body_of(model, file)
    body = getattr(parent, name)
    windows = _windows(model, len(body.layers), file)
    probes = [_Probe(window) for window in windows]
    try:
        hidden = body(mx.zeros((1, 1), mx.int32), probes)
    except Exception as error:
        # A class that wants more of its caches fails in a way of its own.
        raise _unfit(file, f"{type(error).__name__}: {error}") from error
    if not isinstance(hidden, mx.array) or hidden.ndim != 3:
        raise _unfit(file, "its body does not return hidden states alone")
    asked = {tuple(probe.asked) for probe in probes}
    if len(asked) != 1 or len(probes[0].asked) != 1:
        raise _unfit(file, "its layers do not all keep keys and values once, and of one size")
    keys, values, dtype = probes[0].asked[0]
    if keys != values or len(keys) != 4:
        raise _unfit(file, f"keys are shaped {keys} and values {values}: only equal ones are kept")
    if hidden.dtype != dtype:
        raise _unfit(file, f"keys are {dtype} and hidden states {hidden.dtype}: convert the model to one type")
    return Traced(int(hidden.shape[-1]), keys[1], keys[3], dtype, windows)


def _windows(model: Any, layers: int, file: str) -> tuple[int | None, ...]:
    """The window of each layer, from the caches that the class would make for itself."""
    if not hasattr(model, "make_cache"):
        return (None,) * layers
    caches = model.make_cache()
    for cache in caches:
        kind, sinks = type(cache).__name__, getattr(cache, "keep", 0)
        if kind not in KNOWN_CACHES or sinks:
            raise _unfit(file, f"it keeps state in a {kind}; known are {', '.join(KNOWN_CACHES)} without sinks")
    if len(caches) != layers:
        raise _unfit(file, f"its {layers} layers share {len(caches)} caches")
    return tuple(cache.max_size if hasattr(cache, "max_size") else None for cache in caches)


def _unfit(file: str, why: str) -> ArtifactInvalid:
    return ArtifactInvalid(
        f"{file}: this model cannot be run in steps here: {why}. Use a model whose layers keep plain keys and values",
        file=file,
        field="model_type",
    )
