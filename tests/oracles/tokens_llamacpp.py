"""Writes ``tests/fixtures/tokens_llamacpp.json`` and ``greedy_llamacpp.json`` with llama.cpp itself.

Usage: ``python tokens_llamacpp.py LIBRARY_FOLDER MODEL.gguf``; see ``llamacpp_library.py`` for the folder.
The corpus is tokenized with the model's own pre-tokenizer and, over the same vocabulary, with the other
pre-tokenizers that are supported.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
from typing import Any

import gguf
from llamacpp_library import Llama
from tokens_corpus import CORPUS

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
OTHER_PRE = ["gpt-2", "qwen2", "qwen35", "llama-bpe", "default"]
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
]


def with_pre(source: str, pre: str, target: str) -> None:
    """Copy the metadata of ``source``, without tensors, under another pre-tokenizer name."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = pre if name == "tokenizer.ggml.pre" else field.contents()
        subtype = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], sub_type=subtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def tokenize_all(llama: Llama, path: str, *, parse_special: bool = True) -> list[list[int]]:
    model = llama.load(path, vocab_only=True)
    return [llama.tokenize(llama.vocab(model), text, parse_special=parse_special) for text in CORPUS]


def main() -> None:
    folder, path = sys.argv[1:]
    llama = Llama(folder)
    model = llama.load(path, vocab_only=False)
    vocab = llama.vocab(model)
    own = tokenize_all(llama, path)
    literal = tokenize_all(llama, path, parse_special=False)
    tokens: dict[str, Any] = {
        "made_by": "llama.cpp, tests/oracles/tokens_llamacpp.py",
        "model": pathlib.Path(path).name,
        "stop_tokens": llama.stop_tokens(vocab),
        "texts": CORPUS,
        "smollm": own,
        "literal": {str(i): b for i, (a, b) in enumerate(zip(own, literal, strict=True)) if a != b},
    }
    with tempfile.TemporaryDirectory() as scratch:
        for pre in OTHER_PRE:
            target = str(pathlib.Path(scratch, f"{pre}.gguf"))
            with_pre(path, pre, target)
            ids = tokenize_all(llama, target)
            tokens[pre] = {str(i): b for i, (a, b) in enumerate(zip(own, ids, strict=True)) if a != b}
    lines = [f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in tokens.items()]
    (FIXTURES / "tokens_llamacpp.json").write_text("{" + ",\n".join(lines) + "}\n")
    greedy = []
    for prompt in PROMPTS:
        ids = llama.tokenize(vocab, prompt, parse_special=True)
        out, leads = llama.greedy(model, ids, 24)
        greedy.append({"prompt": prompt, "ids": ids, "greedy": out, "lead": leads})
    record = {"made_by": tokens["made_by"], "model": tokens["model"], "runs": greedy}
    (FIXTURES / "greedy_llamacpp.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
