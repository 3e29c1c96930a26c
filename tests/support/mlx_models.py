"""Models loaded for MLX without its backend, and small folders in the form of the MLX community."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.parts import require_or_skip, required_parts


def needs_mlx() -> None:
    """Skip the module that calls this at its top where MLX or mlx-lm is missing, or fail it where they are required."""
    missing = [name for name in ("mlx", "mlx_lm") if importlib.util.find_spec(name) is None]
    if missing and "mlx" in required_parts():
        require_or_skip("mlx", f"{', '.join(missing)} not installed: pip install 'coresident[mlx]'")
    if missing:
        pytest.skip(f"mlx: {', '.join(missing)} not installed", allow_module_level=True)


class Nothing:
    """A layer's cache in front of the first token: keeps nothing."""

    offset = 0

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        return keys, values

    def make_mask(self, count: int, return_array: bool = False, window_size: int | None = None) -> Any:
        if not return_array:
            return "causal" if count > 1 else None
        import mlx.core as mx

        return mx.arange(count)[:, None] >= mx.arange(count)[None]


def load(path: Path | str) -> tuple[Any, Any]:
    """Facts and the loaded model of a file or folder."""
    from coresident.runtime.backends.mlx.description import read_facts
    from coresident.runtime.backends.mlx.loading import load_model
    from coresident.runtime.models.locate import ModelSource

    source = ModelSource(str(path))
    facts = read_facts(source)
    steps = load_model(source, facts)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return facts, end.value


def logits(facts: Any, loaded: Any, tokens: Sequence[int]) -> np.ndarray:
    """Logits of every token, float32 ``(len(tokens), vocabulary)``."""
    import mlx.core as mx

    hidden = loaded.body(mx.array([list(tokens)]), [Nothing() for _ in range(facts.sizes.layers)])
    return np.array(loaded.head(hidden)[0].astype(mx.float32))


def write_quantized(folder: Path, plain: Path, bits: int = 4, group: int = 32, dtype: str = "float16") -> Path:
    """A plain folder quantized as ``mlx_lm.convert`` writes it: matrices whose rows are whole groups; the rest, and
    the scales, become ``dtype``.
    """
    import mlx.core as mx

    arrays: dict[str, mx.array] = {}
    for name, array in mx.load(str(plain / "model.safetensors")).items():
        if array.ndim == 2 and array.shape[1] % group == 0:
            weight, scales, biases = mx.quantize(array.astype(getattr(mx, dtype)), group_size=group, bits=bits)
            module = name.removesuffix(".weight")
            arrays |= {name: weight, f"{module}.scales": scales, f"{module}.biases": biases}
        else:
            arrays[name] = array.astype(getattr(mx, dtype))
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, metadata={"format": "mlx"})
    settings = json.loads((plain / "config.json").read_text())
    rule = {"group_size": group, "bits": bits}
    (folder / "config.json").write_text(json.dumps(settings | {"quantization": rule, "quantization_config": rule}))
    return folder


def write_random(folder: Path, settings: dict[str, Any], scale: float = 0.3) -> Path:
    """A folder with random weights for any model class of mlx-lm, float32, from a fixed seed."""
    import mlx.core as mx
    from coresident.runtime.backends.mlx.building import build
    from mlx.utils import tree_flatten

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    draw = np.random.default_rng(5)
    model = build(settings, str(folder))
    arrays = {
        name: mx.array(draw.uniform(-scale, scale, array.shape).astype(np.float32))
        for name, array in tree_flatten(model.parameters())
    }
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, metadata={"format": "mlx"})
    return folder


GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 96,
    "rms_norm_eps": 1e-6,
    "sliding_window": 8,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 16,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "eos_token_id": 1,
}
