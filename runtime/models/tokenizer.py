"""Text to token ids and back, the same for every kind of model file.

A tokenizer never shortens its input. ``encode`` reads the texts of special tokens as those tokens by default,
which is what a rendered chat template needs; ``special=False`` takes them as ordinary text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import attrs

from ...actors.errors import ArtifactInvalid, InvalidRequest

if TYPE_CHECKING:
    import tokenizers

# Chat models end a turn with one token and a document with another, and files often declare only one of the two.
ENDS_OF_TEXT = frozenset(
    {
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<end_of_turn>",
        "<turn|>",
        "</s>",
        "<eos>",
    }
)


def declared_and_known_ends(declared: Iterable[int], special: Mapping[int, str]) -> frozenset[int]:
    """Stop tokens: those a file declares, and its special tokens whose text is a known end of turn or document."""
    return frozenset(declared) | {token for token, text in special.items() if text in ENDS_OF_TEXT}


def check_text(text: str) -> None:
    """Refuse text that no encoding of Unicode can carry (lone surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"text has the lone surrogate {text[error.start]!r} at character {error.start}; send valid Unicode",
            field="text",
            value=text[error.start],
            position=error.start,
        ) from None


def _check_token(token: int) -> None:
    if token < 0:
        raise InvalidRequest(f"token id is {token}; ids begin at 0", field="token", value=token)


@attrs.frozen(eq=False)
class Tokenizer:
    """A model's own tokenizer, over the ``tokenizers`` library.

    ``vocabulary`` is the number of ids the tokenizer has (a model may have more rows than that); ``added``
    the text of tokens that stand outside the pieces of ordinary text; ``special_tokens`` those of them that
    have no place in an answer; ``stop_tokens`` those that end one; ``names`` maps ``bos_token`` and its like
    to texts, for chat templates.
    """

    label: str
    inner: tokenizers.Tokenizer
    piece_bytes: Callable[[str], bytes]
    vocabulary: int
    added: Mapping[int, str]
    special_tokens: frozenset[int]
    stop_tokens: frozenset[int]
    bos: int | None
    add_bos: bool
    names: Mapping[str, str]
    chat_template: str | None
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    @classmethod
    def from_gguf(cls, path: Path) -> Tokenizer:
        """Build from the metadata of a GGUF file.

        Raises:
            ArtifactInvalid: naming file, field and value, also for a kind of tokenizer that isn't known.
        """
        from .gguf_tokenizer import read_gguf_tokenizer

        return read_gguf_tokenizer(path)

    @classmethod
    def from_json(cls, path: Path) -> Tokenizer:
        """Build from a ``tokenizer.json``, with the configuration files next to it where they are.

        Raises:
            ArtifactInvalid: naming file, field and value.
        """
        from .hf_tokenizer import read_hf_tokenizer

        return read_hf_tokenizer(path)

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """Token ids of the whole text, nothing added. (A byte the vocabulary has no token for gets none.)

        Raises:
            InvalidRequest: the text has lone surrogates.
        """
        check_text(text)
        # The library keeps this choice as state of the tokenizer, and hosts may measure prompts from several threads.
        with self._lock:
            self.inner.encode_special_tokens = not special
            return tuple(self.inner.encode(text, add_special_tokens=False).ids)

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Token ids of a rendered prompt, begun with the model's first token where it wants one and it isn't there."""
        ids = self.encode(text)
        if self.add_bos and self.bos is not None and ids[:1] != (self.bos,):
            return (self.bos, *ids)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; none for ids above the vocabulary, which some models have as padding.

        Raises:
            InvalidRequest: a negative id.
        """
        _check_token(token)
        if token in self.added:
            return self.added[token].encode("utf-8")
        piece = self.inner.id_to_token(token)
        return b"" if piece is None else self.piece_bytes(piece)

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Text of tokens, without special tokens unless asked for; bytes that are no UTF-8 become U+FFFD."""
        shown = (token for token in ids if special or token not in self.special_tokens)
        return b"".join(map(self.token_bytes, shown)).decode("utf-8", errors="replace")


@attrs.frozen
class ByteTokenizer:
    """Every byte is a token: vocabulary 256, no special tokens, no end of text."""

    label: str = "bytes"
    vocabulary: int = 256
    special_tokens: frozenset[int] = frozenset()
    stop_tokens: frozenset[int] = frozenset()
    bos: int | None = None
    add_bos: bool = False
    names: Mapping[str, str] = attrs.field(factory=dict)
    chat_template: str | None = None

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """The text's UTF-8 bytes; there are no special tokens to read, so ``special`` changes nothing."""
        check_text(text)
        return tuple(text.encode("utf-8"))

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        return self.encode(text)

    def token_bytes(self, token: int) -> bytes:
        """One byte; none for ids above 255. Raises ``InvalidRequest`` for a negative id."""
        _check_token(token)
        return bytes([token]) if token < self.vocabulary else b""

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")


AnyTokenizer: TypeAlias = Tokenizer | ByteTokenizer


def load_tokenizer(source: Path | None) -> AnyTokenizer:
    """The tokenizer of a model: a GGUF file, a folder with ``tokenizer.json``, or ``None`` for the synthetic one.

    Raises:
        ArtifactInvalid: naming file, field and value.
    """
    if source is None:
        return ByteTokenizer()
    if source.is_dir():
        return Tokenizer.from_json(source / "tokenizer.json")
    if source.suffix == ".json":
        return Tokenizer.from_json(source)
    if not source.exists():
        raise ArtifactInvalid(
            f"{source}: no such file or folder; give a GGUF file or a Hugging Face folder",
            file=str(source),
            field="path",
            value=str(source),
        )
    return Tokenizer.from_gguf(source)
