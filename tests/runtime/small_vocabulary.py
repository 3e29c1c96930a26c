"""Model files with a small vocabulary, written by the public GGUF writer."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import gguf

FIXTURES = Path(__file__).parent.parent / "fixtures"


@functools.cache
def recorded() -> dict[str, Any]:
    """A vocabulary of about a thousand tokens, and what llama.cpp makes of many texts with it."""
    value: dict[str, Any] = json.loads((FIXTURES / "tokens_small.json").read_text(encoding="utf-8"))
    return value


def write_gguf(path: Path, **changed: Any) -> Path:
    """A GGUF file that holds only a tokenizer; ``changed`` replaces keys, ``None`` leaves one out."""
    small = recorded()
    kinds = dict.fromkeys(small["special"], gguf.TokenType.CONTROL)
    kinds |= dict.fromkeys(small["user_defined"], gguf.TokenType.USER_DEFINED)
    values = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": small["tokens"],
        "tokenizer.ggml.token_type": [int(kinds.get(token, gguf.TokenType.NORMAL)) for token in small["tokens"]],
        "tokenizer.ggml.merges": small["merges"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return _write(path, values, changed)


def write_scored_gguf(path: Path, **changed: Any) -> Path:
    """The same for a SentencePiece-like vocabulary."""
    scored = recorded()["scored"]
    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": scored["tokens"],
        "tokenizer.ggml.scores": scored["scores"],
        "tokenizer.ggml.token_type": scored["kinds"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return _write(path, values, changed)


def _write(path: Path, values: dict[str, Any], changed: dict[str, Any]) -> Path:
    values |= {f"tokenizer.{key.replace('__', '.')}": value for key, value in changed.items()}
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif value is not None:
            writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def write_folder(folder: Path, **files: Any) -> Path:
    """A folder with the same vocabulary as ``tokenizer.json``; ``files`` are JSON files by their stem."""
    import tokenizers
    from tokenizers import AddedToken, decoders, models, pre_tokenizers

    small = recorded()
    merges = [tuple(merge.split(" ")) for merge in small["merges"]]
    vocabulary = {token: i for i, token in enumerate(small["tokens"])}
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in small["special"]])
    inner.add_tokens([AddedToken(text, normalized=False) for text in small["user_defined"]])
    inner.enable_truncation(4)
    inner.save(str(folder / "tokenizer.json"))
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
