"""An empty model of mlx-lm's class for a ``config.json``: its arrays are lazy, so nothing is allocated."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx.nn.layers.quantized import quantize
from mlx.utils import tree_flatten

from ....actors.errors import ArtifactInvalid
from ...models.architecture import invalid
from .library import model_classes

MOST_LAYERS = 4096
Quantization = Mapping[str, Any]


def build(settings: Mapping[str, Any], file: str) -> Any:
    """The model, not quantized yet, with random arrays that nobody evaluates.

    Raises:
        ArtifactInvalid: mlx-lm has no such model, or its class does not take these settings.
    """
    layers = text_setting(settings, "num_hidden_layers")
    if layers is not None and not (isinstance(layers, int) and 0 < layers <= MOST_LAYERS):
        raise invalid(file, "num_hidden_layers", layers, f"it must be from 1 to {MOST_LAYERS}")
    model_class, arguments = model_classes(settings, file)
    try:
        # Some classes write into what they are given.
        return model_class(arguments.from_dict(copy.deepcopy(dict(settings))))
    except Exception as error:
        # Classes of many families check their settings by whatever goes wrong first.
        raise ArtifactInvalid(
            f"{file}: mlx-lm's class for {settings['model_type']} does not take these settings: "
            f"{type(error).__name__}: {error}",
            file=file,
            field="config",
            value=settings["model_type"],
        ) from error
    finally:
        # The class drew random weights lazily: a chain of keys that would stay in memory until the next draw.
        mx.eval(mx.random.state)


def quantized(model: Any, chosen: Mapping[str, Quantization], file: str) -> None:
    """Turn the modules at the paths of ``chosen`` into quantized ones of ``group_size``, ``bits`` and ``mode``.

    Raises:
        ArtifactInvalid: there is no such module, or MLX doesn't have this quantization for it.
    """
    known = dict(model.named_modules())
    for path in chosen:
        if not hasattr(known.get(path), "to_quantized"):
            raise invalid(file, "quantization", path, "the model has no such module that can be quantized")
    try:
        quantize(model, class_predicate=lambda path, _: dict(chosen[path]) if path in chosen else False)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ArtifactInvalid(
            f"{file}: this quantization is not one of MLX: {error}", file=file, field="quantization"
        ) from error


def text_setting(settings: Mapping[str, Any], name: str) -> Any:
    """A setting of the text model, which some families keep under ``text_config``; ``None`` when it isn't there."""
    inner = settings.get("text_config")
    value = settings.get(name)
    return inner.get(name) if value is None and isinstance(inner, Mapping) else value


def parameter_count(model: Any) -> int:
    """The number of weights of a model that is not quantized yet."""
    return sum(array.size for array in dict(tree_flatten(model.parameters())).values())
