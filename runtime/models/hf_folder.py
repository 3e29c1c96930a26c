"""Hugging Face model folders: ``config.json`` with one ``model.safetensors`` or an index of several shards.

Sources: transformers' configuration classes of Llama, Qwen2 and Qwen3 for the keys, the safetensors format
description for the files. safetensors itself checks each file's header; the values are mapped, so that only the rows
asked for are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ...actors.errors import ArtifactInvalid
from .architecture import invalid
from .checkpoint import Checkpoint, RowIndex, Tensor, check_tensors, file_digest
from .hf_config import read_config

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
ENDS = {"model.embed_tokens.weight": "embedding", "model.norm.weight": "final_norm", "lm_head.weight": "output"}
LAYER = {
    "input_layernorm.weight": "attention_norm",
    "self_attn.q_proj.weight": "q",
    "self_attn.k_proj.weight": "k",
    "self_attn.v_proj.weight": "v",
    "self_attn.q_proj.bias": "q_bias",
    "self_attn.k_proj.bias": "k_bias",
    "self_attn.v_proj.bias": "v_bias",
    "self_attn.q_norm.weight": "q_norm",
    "self_attn.k_norm.weight": "k_norm",
    "self_attn.o_proj.weight": "o",
    "post_attention_layernorm.weight": "mlp_norm",
    "mlp.gate_proj.weight": "gate",
    "mlp.up_proj.weight": "up",
    "mlp.down_proj.weight": "down",
}


def open_folder(folder: Path) -> Checkpoint:
    """Open a model folder; no weight is read.

    Raises:
        ArtifactInvalid: a file is missing or damaged, or is no decoder that can be run; names file, field and value.
    """
    settings = read_json(folder / "config.json")
    config = read_config(settings, str(folder / "config.json"))
    shards = weight_files(folder)
    found: dict[str, Tensor] = {}
    for shard in shards:
        for name, tensor in _tensors(shard).items():
            if name in found:
                raise invalid(str(shard), "tensor", name, "another shard holds it too")
            found[name] = tensor
    if config.tied:
        found.pop("lm_head.weight", None)
    tensors = {_our_name(name): tensor for name, tensor in found.items() if "rotary_emb" not in name}
    check_tensors(config, tensors, str(folder))
    stored = next(iter(tensors.values())).stored
    return Checkpoint(
        label=f"{folder.name} ({config.architecture}, {stored}, safetensors)",
        config=config,
        tensors=tensors,
        stop_tokens=stop_tokens(folder, settings, config.vocabulary),
        digest=folder_digest(folder, shards),
        interleaved=False,
        path=str(folder),
        metadata=settings,
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ArtifactInvalid: the file is missing, is no JSON, or holds no object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactInvalid(f"{path}: cannot be read as JSON: {error}", file=str(path), field="file") from error
    if not isinstance(value, dict):
        raise invalid(str(path), "content", type(value).__name__, "it must be a JSON object")
    return value


def weight_files(folder: Path) -> list[Path]:
    """The weight files: those that the index names, or the single one."""
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            raise invalid(str(folder), "weights", "missing", f"there is neither {SINGLE} nor {INDEX}")
        return [folder / SINGLE]
    index = folder / INDEX
    weights = read_json(index).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise invalid(str(index), "weight_map", weights, "it must name a shard for each tensor")
    names = sorted({_shard_name(index, tensor, name) for tensor, name in weights.items()})
    for name in names:
        if not (folder / name).is_file():
            raise invalid(str(index), "weight_map", name, "this shard is missing from the folder")
    return [folder / name for name in names]


def _shard_name(index: Path, tensor: str, name: object) -> str:
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
        raise invalid(str(index), f"shard of {tensor}", name, "shards are .safetensors files in the folder itself")
    return name


def _tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file; the library refuses sizes and offsets that don't fit the file."""
    file = str(path)
    try:
        with safe_open(file, framework="numpy"):
            pass
        with path.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            header = json.loads(handle.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise ArtifactInvalid(f"{file}: cannot be read as safetensors: {error}", file=file, field="header") from error
    header.pop("__metadata__", None)
    return {name: _tensor(path, 8 + length, name, entry) for name, entry in header.items()}


def _tensor(path: Path, base: int, name: str, entry: Mapping[str, Any]) -> Tensor:
    stored, shape = entry["dtype"], tuple(entry["shape"])
    if stored not in STORED:
        raise invalid(str(path), f"dtype of {name}", stored, f"supported are {', '.join(STORED)}")
    if not shape or 0 in shape:
        raise invalid(str(path), f"shape of {name}", shape, "a tensor without rows means nothing")
    offset = base + entry["data_offsets"][0]

    def read(rows: RowIndex) -> NDArray[np.float32]:
        raw = np.asarray(np.memmap(path, STORED[stored], "r", offset, shape)[rows])
        # The upper half of a float32 is exactly its bfloat16, which NumPy does not have.
        return (raw.astype(np.uint32) << 16).view(np.float32) if stored == "BF16" else raw.astype(np.float32)

    def packed(rows: slice) -> NDArray[np.uint8]:
        raw = np.memmap(path, STORED[stored], "r", offset, shape)[rows]
        return np.asarray(raw.reshape(len(raw), -1)).view(np.uint8)

    return Tensor(name, shape, stored, read, packed)


def _our_name(name: str) -> str:
    """``model.layers.3.self_attn.q_proj.weight`` becomes ``layers.3.q``; unknown names stay and are refused later."""
    if name in ENDS:
        return ENDS[name]
    index, _, tail = name.removeprefix("model.layers.").partition(".")
    if name.startswith("model.layers.") and index.isdigit() and tail in LAYER:
        return f"layers.{int(index)}.{LAYER[tail]}"
    return name


def stop_tokens(folder: Path, settings: Mapping[str, Any], vocabulary: int) -> tuple[int, ...]:
    """``eos_token_id`` of generation_config.json where there is one, else of config.json; one id or a list."""
    generation = folder / "generation_config.json"
    source = read_json(generation) if generation.is_file() else settings
    value = source.get("eos_token_id", settings.get("eos_token_id"))
    ids = [] if value is None else value if isinstance(value, list) else [value]
    for token in ids:
        if not isinstance(token, int) or not 0 <= token < vocabulary:
            raise invalid(str(folder), "eos_token_id", token, f"it must be a token below {vocabulary}")
    return tuple(dict.fromkeys(ids))


def folder_digest(folder: Path, shards: list[Path]) -> str:
    """SHA-256 over the digests of config.json and of every weight file with its name."""
    digest = hashlib.sha256(file_digest(folder / "config.json").encode())
    for shard in shards:
        digest.update(shard.name.encode() + file_digest(shard).encode())
    return digest.hexdigest()
