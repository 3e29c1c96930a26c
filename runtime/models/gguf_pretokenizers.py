"""Pre-tokenizers by the name in ``tokenizer.ggml.pre``.

Source: llama.cpp's src/llama-vocab.cpp, where a list of expressions is applied one after the other, each cutting the
pieces that the earlier ones left; what no expression matches is a piece as well.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{LINES}"


@attrs.frozen
class PreTokenizer:
    """``patterns`` cut text into words; ``whole_words`` takes a word that is itself a token without merging."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


LLAMA3 = PreTokenizer((rf"{CONTRACTION}|{WORDS % '{1,3}'}",), whole_words=True, add_bos=True)
QWEN2 = PreTokenizer((rf"{CONTRACTION}|{WORDS % ''}",))
QWEN35 = PreTokenizer(
    (
        rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{LINES}",
    )
)
DIGIT_WISE = PreTokenizer((r"\p{N}", GPT2))
PLAIN = PreTokenizer((GPT2,))

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "deepseek-r1-qwen": QWEN2,
    "falcon3": LLAMA3,
    "gpt-2": PLAIN,
    "lfm2": LLAMA3,
    "llama-bpe": LLAMA3,
    "llama-v3": LLAMA3,
    "llama3": LLAMA3,
    "olmo": PLAIN,
    "phi-2": PLAIN,
    "qwen2": QWEN2,
    "qwen35": QWEN35,
    "smollm": DIGIT_WISE,
    "starcoder": DIGIT_WISE,
}
