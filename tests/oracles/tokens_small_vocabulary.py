"""Writes ``tests/fixtures/tokens_small.json``: texts in small vocabularies whose merges cross every boundary.

The merges are learned on the corpus without cutting it into words, so tokens span spaces, digits, signs and
line ends, and the ids depend on every cut that a pre-tokenizer makes. Usage: ``python
tokens_small_vocabulary.py LIBRARY_FOLDER``.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
from typing import Any

import gguf
import tokenizers
from llamacpp_library import Llama
from tokenizers import models, pre_tokenizers, trainers
from tokens_corpus import CORPUS

TARGET = pathlib.Path(__file__).parent.parent / "fixtures" / "tokens_small.json"
PRE = ["smollm", "gpt-2", "qwen2", "qwen35", "llama-bpe", "default"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<think>", "  two  spaces  "]
SIZE = 1000
RUNS = [piece * n for piece in ("a", " ", "aab", "=-=") for n in (2, 3, 5, 8, 13, 21)]


def learn() -> tuple[list[str], list[str]]:
    """Tokens and merges learned on the corpus, three times over so that rare sequences count as well."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=SPECIAL,
        initial_alphabet=alphabet,
        max_token_length=8,
        show_progress=False,
    )
    inner.train_from_iterator(CORPUS * 3, trainer)
    state = json.loads(inner.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    return tokens + USER_DEFINED, [" ".join(merge) for merge in state["merges"]]


def learn_scored() -> dict[str, Any]:
    """A SentencePiece-like vocabulary; rare characters are left to byte tokens, and so is NUL, which ends C strings."""
    inner = tokenizers.Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=SIZE, max_token_length=8, show_progress=False)
    inner.train_from_iterator([text.replace(" ", "\u2581") for text in CORPUS * 3], trainer)
    state = json.loads(inner.to_str())["model"]
    joined = "".join(CORPUS).replace(" ", "\u2581")
    characters = [c for c in sorted(state["vocab"]) if len(c) == 1 and joined.count(c) > 1 and c != "\0"]
    merged = [m for m in dict.fromkeys(map("".join, state["merges"])) if set(m) <= set(characters)]
    normal = merged + characters
    kind = gguf.TokenType
    kinds = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * 256, *[kind.NORMAL] * len(normal)]
    return {
        "tokens": ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *normal, "<think>"],
        "scores": [0.0] * 259 + [-float(i) for i in range(len(normal))] + [0.0],
        "kinds": list(map(int, [*kinds, kind.USER_DEFINED])),
    }


def write_scored(path: pathlib.Path, scored: dict[str, Any]) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(scored["tokens"])
    writer.add_token_scores(scored["scores"])
    writer.add_token_types(scored["kinds"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write(path: pathlib.Path, tokens: list[str], merges: list[str], pre: str) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    kinds = dict.fromkeys(SPECIAL, gguf.TokenType.CONTROL) | dict.fromkeys(USER_DEFINED, gguf.TokenType.USER_DEFINED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    finish(writer)


def main() -> None:
    llama = Llama(sys.argv[1])
    tokens, merges = learn()
    record: dict[str, Any] = {
        "made_by": "llama.cpp, tests/oracles/tokens_small_vocabulary.py",
        "tokens": tokens,
        "merges": merges,
        "special": SPECIAL,
        "user_defined": USER_DEFINED,
        "texts": [*CORPUS, "a<think>b  two  spaces  c<|im_end|>", "   two  spaces   "],
    }
    with tempfile.TemporaryDirectory() as scratch:
        for pre in PRE:
            path = pathlib.Path(scratch, f"{pre}.gguf")
            write(path, tokens, merges, pre)
            vocab = llama.vocab(llama.load(str(path), vocab_only=True))
            record[pre] = [llama.tokenize(vocab, text, parse_special=True) for text in record["texts"]]
            record[f"{pre} literal"] = [
                llama.tokenize(vocab, text, parse_special=False) for text in record["texts"][-26:]
            ]
        path = pathlib.Path(scratch, "scored.gguf")
        scored = learn_scored()
        write_scored(path, scored)
        vocab = llama.vocab(llama.load(str(path), vocab_only=True))
        texts = [*record["texts"], *RUNS, "a<s>b</s> c<s>  d<think> e"]
        scored["runs"] = texts[len(record["texts"]) :]
        scored["ids"] = [llama.tokenize(vocab, text, parse_special=True) for text in texts]
        scored["literal"] = [llama.tokenize(vocab, text, parse_special=False) for text in scored["runs"]]
        record["scored"] = scored
    lines = [f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in record.items()]
    TARGET.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
