"""A tokenizer from the metadata of a GGUF file, giving the same ids as llama.cpp.

Keys: ggml's docs/gguf.md; what they mean to a tokenizer: llama.cpp's src/llama-vocab.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs

from .architecture import invalid
from .gguf_pretokenizers import PRE_TOKENIZERS, PreTokenizer
from .pieces import BYTE_PIECES, SPACE_MARK, byte_level, marked_spaces
from .tokenizer import Tokenizer, declared_and_known_ends

if TYPE_CHECKING:
    import tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

T = TypeVar("T", int, bool, float, str)


@attrs.frozen
class _Fields:
    """Typed access to one file's metadata."""

    file: str
    metadata: Mapping[str, Any]

    def one(self, key: str, kind: type[T]) -> T | None:
        value = self.metadata.get(key)
        if value is not None and type(value) is not kind:
            raise invalid(self.file, key, value, f"it must be a single {kind.__name__}")
        return value

    def many(self, key: str, kind: type[T]) -> list[T]:
        values = self.metadata.get(key)
        if values is None:
            raise invalid(self.file, key, "missing", "the tokenizer cannot be built without it")
        if not isinstance(values, list) or any(type(value) is not kind for value in values):
            raise invalid(self.file, key, values, f"it must be a list of {kind.__name__}")
        return values

    def token(self, name: str, vocabulary: int) -> int | None:
        key = f"tokenizer.ggml.{name}"
        value = self.one(key, int)
        if value is not None and not 0 <= value < vocabulary:
            raise invalid(self.file, key, value, f"it must be a token id below {vocabulary}")
        return value


@attrs.frozen
class _Built:
    """What the kinds of tokenizers differ in."""

    inner: tokenizers.Tokenizer
    piece_bytes: Callable[[str], bytes]
    add_bos: bool


def read_gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer that a GGUF file describes.

    Raises:
        ArtifactInvalid: naming file, field and value.
    """
    from .gguf_header import read_header

    fields = _Fields(str(path), read_header(path).metadata)
    build = _builder(fields)
    tokens = fields.many("tokenizer.ggml.tokens", str)
    vocabulary = _vocabulary(fields, tokens)
    kinds = _kinds(fields, len(tokens))
    built = build(fields, vocabulary, kinds)
    special = {i: tokens[i] for i, kind in enumerate(kinds) if kind in (UNKNOWN, CONTROL)}
    plain = {i: tokens[i] for i, kind in enumerate(kinds) if kind == USER_DEFINED}
    _add(built.inner, special, plain)
    ends = [end for name in END_KEYS if (end := fields.token(name, len(tokens))) is not None]
    bos = fields.token("bos_token_id", len(tokens))
    add_bos = fields.one("tokenizer.ggml.add_bos_token", bool)
    return Tokenizer(
        label=path.name,
        inner=built.inner,
        piece_bytes=built.piece_bytes,
        vocabulary=len(tokens),
        added=special | plain,
        special_tokens=frozenset(special),
        stop_tokens=declared_and_known_ends(ends, special),
        bos=bos,
        add_bos=bos is not None and (built.add_bos if add_bos is None else add_bos),
        names=_names(fields, tokens),
        chat_template=fields.one("tokenizer.chat_template", str),
    )


_Builder: TypeAlias = Callable[["_Fields", "dict[str, int]", "Sequence[int]"], _Built]


def _builder(fields: _Fields) -> _Builder:
    model = fields.one("tokenizer.ggml.model", str)
    builders: dict[str | None, _Builder] = {"gpt2": _byte_level_bpe, "llama": _scored_bpe}
    if model not in builders:
        why = "gpt2 (byte-level BPE) and llama (BPE by scores) are built from GGUF; else use tokenizer.json"
        raise invalid(fields.file, "tokenizer.ggml.model", model or "missing", why)
    return builders[model]


def _pre_tokenizer(fields: _Fields) -> PreTokenizer:
    name = fields.one("tokenizer.ggml.pre", str) or "default"
    if name not in PRE_TOKENIZERS:
        raise invalid(fields.file, "tokenizer.ggml.pre", name, f"known are {', '.join(PRE_TOKENIZERS)}")
    return PRE_TOKENIZERS[name]


def _kinds(fields: _Fields, count: int) -> list[int]:
    if "tokenizer.ggml.token_type" not in fields.metadata:
        return [NORMAL] * count
    kinds = fields.many("tokenizer.ggml.token_type", int)
    if len(kinds) != count:
        raise invalid(fields.file, "tokenizer.ggml.token_type", len(kinds), f"there are {count} tokens")
    return kinds


def _vocabulary(fields: _Fields, tokens: Sequence[str]) -> dict[str, int]:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if not tokens:
        raise invalid(fields.file, "tokenizer.ggml.tokens", 0, "a vocabulary needs tokens")
    if len(vocabulary) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if vocabulary[token] != i)
        raise invalid(fields.file, "tokenizer.ggml.tokens", twice, "the token occurs twice")
    for i, token in enumerate(tokens):
        if not token.isascii() and any("\ud800" <= character <= "\udfff" for character in token):
            raise invalid(fields.file, f"tokenizer.ggml.tokens[{i}]", token, "it is not valid UTF-8")
    return vocabulary


def _byte_level_bpe(fields: _Fields, vocabulary: dict[str, int], kinds: Sequence[int]) -> _Built:
    """GPT-2's kind: pieces are bytes in a printable alphabet, joined in the order of the listed merges."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    pre = _pre_tokenizer(fields)
    merges = []
    for i, merge in enumerate(fields.many("tokenizer.ggml.merges", str)):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            why = "both parts and their join must be tokens of the vocabulary"
            raise invalid(fields.file, f"tokenizer.ggml.merges[{i}]", merge, why)
        merges.append((left, right))
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre.whole_words))
    cuts = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([*cuts, as_bytes])
    inner.decoder = decoders.ByteLevel()
    return _Built(inner, byte_level, pre.add_bos)


def _scored_bpe(fields: _Fields, vocabulary: dict[str, int], kinds: Sequence[int]) -> _Built:
    """SentencePiece's BPE: of all neighbours whose join is a token, the join with the highest score comes first.

    What no token covers is spelt in byte tokens; spaces are marked, and one is put before each stretch of text.
    """
    import tokenizers
    from tokenizers import models, normalizers

    scores = fields.many("tokenizer.ggml.scores", float)
    if len(scores) != len(vocabulary) or not all(map(math.isfinite, scores)):
        why = f"one finite score for each of {len(vocabulary)} tokens is needed"
        raise invalid(fields.file, "tokenizer.ggml.scores", scores, why)
    missing = [byte for byte in BYTE_PIECES if byte not in vocabulary]
    if missing:
        why = "text that no token covers is spelt in them"
        raise invalid(fields.file, "tokenizer.ggml.tokens", f"without {missing[0]}", why)
    merges = [
        (piece[:cut], piece[cut:])
        for piece, token in sorted(vocabulary.items(), key=lambda item: -scores[item[1]])
        if kinds[token] == NORMAL
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True))
    marks: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    if fields.one("tokenizer.ggml.add_space_prefix", bool) is not False:
        marks.insert(0, normalizers.Prepend(SPACE_MARK))
    inner.normalizer = normalizers.Sequence(marks)
    return _Built(inner, marked_spaces, add_bos=True)


def _add(inner: tokenizers.Tokenizer, special: Mapping[int, str], plain: Mapping[int, str]) -> None:
    from tokenizers import AddedToken

    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special.values()])
    inner.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain.values()])


def _names(fields: _Fields, tokens: Sequence[str]) -> dict[str, str]:
    """Texts for chat templates, by the names Hugging Face templates use."""
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: fields.token(f"{key}_token_id", len(tokens)) for name, key in keys.items()}
    return {name: tokens[token] for name, token in ids.items() if token is not None}
