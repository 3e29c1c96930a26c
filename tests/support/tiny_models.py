"""Tiny random decoders of every supported family, as Hugging Face folders and as GGUF files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from safetensors.numpy import save_file

HIDDEN, LAYERS, HEADS, KV_HEADS, MLP, VOCABULARY = 64, 2, 4, 2, 96, 160
TOKENS = (3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64, 33, 83, 27, 95, 2, 88, 41, 97)

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False},
    "llama_linear": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "llama_llama3": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True},
    "qwen3": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "tie_word_embeddings": True,
        "head_dim": 32,
    },
}


def settings(family: str) -> dict[str, Any]:
    """The ``config.json`` of a family."""
    return {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "intermediate_size": MLP,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500.0,
        "max_position_embeddings": 256,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        **SETTINGS[family],
    }


def tensors(family: str) -> dict[str, np.ndarray]:
    """Random weights by their Hugging Face names."""
    config = settings(family)
    head_dim = config.get("head_dim", HIDDEN // HEADS)
    q, kv = HEADS * head_dim, KV_HEADS * head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for index in range(LAYERS):
        layer = f"model.layers.{index}."
        shapes |= {
            layer + "input_layernorm.weight": (HIDDEN,),
            layer + "self_attn.q_proj.weight": (q, HIDDEN),
            layer + "self_attn.k_proj.weight": (kv, HIDDEN),
            layer + "self_attn.v_proj.weight": (kv, HIDDEN),
            layer + "self_attn.o_proj.weight": (HIDDEN, q),
            layer + "post_attention_layernorm.weight": (HIDDEN,),
            layer + "mlp.gate_proj.weight": (MLP, HIDDEN),
            layer + "mlp.up_proj.weight": (MLP, HIDDEN),
            layer + "mlp.down_proj.weight": (HIDDEN, MLP),
        }
        if config["model_type"] == "qwen2":
            shapes |= {layer + f"self_attn.{name}_proj.bias": (q if name == "q" else kv,) for name in "qkv"}
        if config["model_type"] == "qwen3":
            shapes |= {layer + f"self_attn.{name}_norm.weight": (head_dim,) for name in "qk"}
    shapes["model.norm.weight"] = (HIDDEN,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return {name: _values(name, shape) for name, shape in shapes.items()}


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform values from raw counter-based words, which never change between NumPy versions."""
    words = np.random.Philox(key=zlib.crc32(name.encode())).random_raw(int(np.prod(shape)))
    unit = (words >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    values = unit.reshape(shape) * np.float32(0.35 if len(shape) > 1 else 0.5)
    return values + np.float32(1) if "norm" in name else values


def write_folder(folder: Path, family: str, shards: int = 1, weights: Mapping[str, np.ndarray] | None = None) -> Path:
    """A Hugging Face folder, sharded with an index when ``shards`` is more than one; other ``weights`` than its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings(family)))
    weights = dict(weights or tensors(family))
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names, index = list(weights), {}
    for number in range(shards):
        shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        chosen = names[number::shards]
        save_file({name: weights[name] for name in chosen}, folder / shard, metadata={"format": "pt"})
        index |= dict.fromkeys(chosen, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


GGUF_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
GGUF_ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def write_gguf(
    path: Path,
    family: str,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    factors: np.ndarray | None = None,
    tokenizer: bool = False,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """The same model as a GGUF file with matrices of ``kind``; Llama's q and k rows are permuted.

    With ``tokenizer`` the printable ASCII characters are its tokens. ``weights`` replace the family's own, float32.
    """
    config = settings(family)
    architecture = config["model_type"]
    writer = GGUFWriter(path, architecture)
    writer.add_name(f"tiny {family}")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_eos_token_id(config["eos_token_id"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if tokenizer:
        single = [chr(33 + number) for number in range(94)]
        tokens = [*single, '!"', *(f"<{number}>" for number in range(95, VOCABULARY))]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(tokens)
        writer.add_token_types([1] * VOCABULARY)
        writer.add_token_merges(['! "'])
    for name, values in (weights or tensors(family)).items():
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            values = _permute(values, HEADS if "q_proj" in name else KV_HEADS)
        ours = GGUF_ENDS.get(name) or f"blk.{name.split('.')[2]}.{GGUF_LAYER['.'.join(name.split('.')[3:])]}"
        if values.ndim > 1 and kind is not GGMLQuantizationType.F32:
            writer.add_tensor(ours, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(ours, values)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _permute(weights: np.ndarray, heads: int) -> np.ndarray:
    """The row order of ggml's converter (convert_hf_to_gguf.py, ``LlamaModel.permute``)."""
    split = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(weights.shape))
