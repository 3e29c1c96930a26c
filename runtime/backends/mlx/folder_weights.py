"""Hugging Face folders, those of the MLX community included, for any model class that mlx-lm has.

Sources: mlx-lm's ``utils.load_model`` for the order (the class tidies up the names, then modules that have scales in
the file become quantized ones) and the ``quantization`` entry of ``config.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from safetensors import SafetensorError, safe_open

from ....actors.errors import ArtifactInvalid
from ...models.architecture import invalid
from ...models.hf_folder import folder_digest, read_json, stop_tokens, weight_files
from .building import Quantization, build, parameter_count, quantized, text_setting
from .weight_arrays import OpenedModel, Pending, check_arrays, held_dtype

CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def open_folder_model(folder: Path) -> OpenedModel:
    """An empty model for a folder, and how each of its arrays is read.

    Raises:
        ArtifactInvalid: a file is missing or damaged, or mlx-lm cannot run it; names file, field and value.
    """
    file = str(folder / "config.json")
    settings = read_json(folder / "config.json")
    shards = weight_files(folder)
    vocabulary = _positive(settings, "vocab_size", file)
    model = build(settings, file)
    arrays = _tidied(model, _arrays(shards), file)
    parameters = parameter_count(model)
    chosen = _quantization(model, settings, arrays, file)
    quantized(model, chosen, file)
    pending = {name: _pending(array) for name, array in arrays.items()}
    check_arrays(model, pending, str(folder))
    return OpenedModel(
        file=str(folder),
        label=f"{folder.name} ({settings['model_type']}, {_kind(chosen, pending)}, safetensors)",
        architecture=settings["model_type"],
        digest=folder_digest(folder, shards),
        context_limit=_context_limit(settings, file),
        vocabulary=vocabulary,
        parameters=parameters,
        stop_tokens=stop_tokens(folder, settings, vocabulary),
        path=str(folder),
        settings=settings,
        model=model,
        pending=pending,
    )


def _arrays(shards: list[Path]) -> dict[str, mx.array]:
    """Every array of the files, lazy: MLX reads the headers now and the values when they are evaluated."""
    found: dict[str, mx.array] = {}
    for shard in shards:
        try:
            # The library refuses sizes and offsets that don't fit the file; MLX would read beyond its end.
            with safe_open(str(shard), framework="numpy"):
                pass
            arrays = cast("dict[str, mx.array]", mx.load(str(shard)))
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise ArtifactInvalid(
                f"{shard}: cannot be read as safetensors: {error}", file=str(shard), field="header"
            ) from error
        for name, array in arrays.items():
            if name in found:
                raise invalid(str(shard), "tensor", name, "another file holds it too")
            found[name] = array
    return found


def _tidied(model: Any, arrays: dict[str, mx.array], file: str) -> dict[str, mx.array]:
    """The names that the class wants; some classes join or drop arrays on the way, lazily."""
    if not hasattr(model, "sanitize"):
        return arrays
    try:
        return dict(model.sanitize(arrays))
    except Exception as error:
        # As with settings: what a class of another family stumbles over first.
        raise ArtifactInvalid(
            f"{file}: mlx-lm's class does not take these tensors: {type(error).__name__}: {error}",
            file=file,
            field="tensors",
        ) from error


def _quantization(
    model: Any, settings: Mapping[str, Any], arrays: Mapping[str, mx.array], file: str
) -> dict[str, Quantization]:
    """Which modules are quantized, and how: those that have scales in the file."""
    rule = settings.get("quantization")
    if rule is None:
        if settings.get("quantization_config") is not None:
            kind = settings["quantization_config"]
            why = "only MLX's own quantization is read; convert the model with mlx-lm"
            raise invalid(file, "quantization_config", kind, why)
        return {}
    if not isinstance(rule, Mapping):
        raise invalid(file, "quantization", rule, "it must be an object")
    common = {"group_size": rule.get("group_size"), "bits": rule.get("bits"), "mode": rule.get("mode", "affine")}
    chosen: dict[str, Quantization] = {}
    for path, module in model.named_modules():
        if hasattr(module, "to_quantized") and f"{path}.scales" in arrays:
            own = rule.get(path)
            chosen[path] = common | dict(own) if isinstance(own, Mapping) else common
    return chosen


def _pending(array: mx.array) -> Pending:
    dtype = held_dtype(array.dtype)
    return Pending(tuple(array.shape), dtype, lambda: array if array.dtype == dtype else array.astype(dtype))


def _kind(chosen: Mapping[str, Quantization], pending: Mapping[str, Pending]) -> str:
    if chosen:
        one = next(iter(chosen.values()))
        return f"{one['bits']} bits in groups of {one['group_size']}"
    return str(next(iter(pending.values())).dtype).removeprefix("mlx.core.")


def _context_limit(settings: Mapping[str, Any], file: str) -> int:
    for name in CONTEXTS:
        if text_setting(settings, name) is not None:
            return _positive(settings, name, file)
    raise invalid(file, "max_position_embeddings", "missing", "the model's context cannot be known without it")


def _positive(settings: Mapping[str, Any], name: str, file: str) -> int:
    value = text_setting(settings, name)
    if type(value) is not int or not 0 < value < 1 << 31:
        raise invalid(file, name, "missing" if value is None else value, "it must be a positive number")
    return value
