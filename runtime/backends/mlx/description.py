"""A model's facts from its files' metadata: no weight is read, and nothing of MLX is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx

from ...models.architecture import invalid
from ...models.heads import Head, HeadSpec, choose_heads, resolve_heads
from ...models.locate import ModelSource
from ..contract import ModelDescription
from ..prefix_header import ITEM_BYTES, Geometry
from .building import text_setting
from .checkpoint_weights import open_checkpoint
from .folder_weights import open_folder_model
from .streams import borrowed
from .tracing import trace
from .weight_arrays import OpenedModel, WeightArray, blank, dtype_name, own_arrays, place


@attrs.frozen
class Sizes:
    """What steps and caches are sized by; ``dtype`` is that of keys, values and activations.

    ``windows`` has a layer's window in positions, or ``None`` where it sees the whole context.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    dtype: str
    windows: tuple[int | None, ...]

    @property
    def position_bytes(self) -> int:
        """Bytes of keys, and of values, of one position in one layer."""
        return self.kv_heads * self.head_dim * ITEM_BYTES[self.dtype]


@attrs.frozen(eq=False)
class MlxFacts:
    """A model's description, sizes, heads, and every array that loading it makes."""

    description: ModelDescription
    sizes: Sizes
    heads: Mapping[str, Head]
    arrays: tuple[WeightArray, ...]

    @property
    def geometry(self) -> Geometry:
        """What retained copies have to fit."""
        sizes = self.sizes
        return Geometry(self.description.digest, sizes.layers, sizes.kv_heads, sizes.head_dim, sizes.dtype)

    def with_heads(self, specs: Sequence[HeadSpec]) -> MlxFacts:
        """The same model with other heads; its files are not read again."""
        heads = resolve_heads(specs, self.description.digest, self.sizes.hidden, self.sizes.vocabulary)
        return attrs.evolve(self, description=attrs.evolve(self.description, heads=tuple(heads)), heads=heads)

    def choose_heads(self, names: Sequence[str]) -> tuple[Head, ...]:
        """The named heads in order. Raises InvalidRequest for a name that the model doesn't have."""
        return choose_heads(self.heads, names)


def open_source(source: ModelSource) -> OpenedModel:
    """Open a model's files for MLX, reading no weight.

    Raises:
        ArtifactInvalid: a file is missing or damaged, or the model cannot be run; names file, field and value.
    """
    path = Path(source.path)
    return open_folder_model(path) if path.is_dir() else open_checkpoint(source.open())


def read_facts(source: ModelSource) -> MlxFacts:
    """Read a model's metadata and heads, and hash its files, on any thread. Raises like ``open_source``."""
    with borrowed():
        opened = open_source(source)
        place(opened.model, blank(opened.pending))
        traced = trace(opened.model, opened.file)
        arrays = _arrays(opened)
    sizes = Sizes(
        layers=len(traced.windows),
        hidden=traced.hidden,
        heads=_size(opened, "num_attention_heads"),
        kv_heads=traced.kv_heads,
        head_dim=traced.head_dim,
        mlp=_widest_mlp(opened),
        vocabulary=opened.vocabulary,
        dtype=_name(opened, traced.dtype),
        windows=traced.windows,
    )
    heads = resolve_heads(source.heads, opened.digest, sizes.hidden, sizes.vocabulary)
    return MlxFacts(_description(opened, sizes, tuple(heads)), sizes, heads, arrays)


def _name(opened: OpenedModel, kept: mx.Dtype) -> str:
    name = dtype_name(kept)
    if name not in ITEM_BYTES:
        raise invalid(opened.file, "dtype", name, f"keys and values may be {', '.join(ITEM_BYTES)}")
    return name


def _description(opened: OpenedModel, sizes: Sizes, heads: tuple[str, ...]) -> ModelDescription:
    return ModelDescription(
        label=opened.label,
        architecture=opened.architecture,
        digest=opened.digest,
        context_limit=opened.context_limit,
        vocabulary=opened.vocabulary,
        parameters=opened.parameters,
        layers=sizes.layers,
        kv_bytes_per_token=2 * sizes.layers * sizes.position_bytes,
        stop_tokens=opened.stop_tokens,
        heads=heads,
        path=opened.path,
        windows=sizes.windows if any(sizes.windows) else (),
    )


def _arrays(opened: OpenedModel) -> tuple[WeightArray, ...]:
    """Parameters, and the arrays that modules make for themselves, such as rotary periods."""
    parameters = [WeightArray.of(name, one.shape, one.dtype) for name, one in opened.pending.items()]
    own = [WeightArray.of(name, tuple(one.shape), one.dtype) for name, one in own_arrays(opened.model).items()]
    return (*parameters, *own)


def _size(opened: OpenedModel, name: str) -> int:
    value: Any = text_setting(opened.settings, name)
    if type(value) is not int or value < 1:
        raise invalid(opened.file, name, "missing" if value is None else value, "it must be a positive number")
    return value


def _widest_mlp(opened: OpenedModel) -> int:
    """The widest feed-forward part that a token goes through, those of the experts chosen for it taken together."""
    dense = text_setting(opened.settings, "intermediate_size")
    expert = text_setting(opened.settings, "moe_intermediate_size")
    chosen = text_setting(opened.settings, "num_experts_per_tok")
    widths = [*dense] if isinstance(dense, list) else [dense]
    if expert is not None:
        widths.append(expert * chosen)
    found = [width for width in widths if type(width) is int and width > 0]
    if not found:
        raise invalid(opened.file, "intermediate_size", dense, "it must be a positive number")
    return max(found)
