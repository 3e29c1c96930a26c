"""Tokens to text, one token at a time.

A character's bytes may be spread over several tokens, so bytes go through an incremental UTF-8 decoder: text
comes out when its last byte is there. The concatenation equals decoding all tokens at once (invalid bytes
become U+FFFD in both).
"""

from __future__ import annotations

import codecs

import attrs

from .tokenizer import AnyTokenizer


@attrs.define(eq=False)
class Detokenizer:
    """One stream of tokens. Special tokens have no text unless ``special`` asks for theirs."""

    tokenizer: AnyTokenizer
    special: bool = False
    _decoder: codecs.IncrementalDecoder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Text that is certain after ``token``: never part of a character."""
        if not self.special and token in self.tokenizer.special_tokens:
            return ""
        return self._decoder.decode(self.tokenizer.token_bytes(token))

    def flush(self) -> str:
        """The stream has ended: an unfinished character becomes U+FFFD. The object is then ready for another stream."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
