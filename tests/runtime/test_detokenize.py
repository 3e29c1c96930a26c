"""Text of a token stream: whole characters only, and the same text however it is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from coresident.runtime.models.detokenize import Detokenizer
from coresident.runtime.models.tokenizer import ByteTokenizer, Tokenizer
from hypothesis import given
from hypothesis import strategies as st
from small_vocabulary import recorded, write_gguf

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_gguf(write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf"))


@given(raw=st.binary(max_size=60) | TEXT.map(str.encode))
def test_pieces_join_to_the_whole_decoding(raw: bytes):
    stream = Detokenizer(ByteTokenizer())
    pieces = [stream.push(byte) for byte in raw]
    assert "".join(pieces) + stream.flush() == ByteTokenizer().decode(raw)


@given(text=TEXT)
def test_only_whole_characters_come_out(text: str):
    stream = Detokenizer(ByteTokenizer())
    said = ""
    for count, byte in enumerate(text.encode(), start=1):
        said += stream.push(byte)
        # All characters that are complete by now, and nothing of the next one.
        assert said == text.encode()[:count].decode(errors="ignore")
    assert stream.flush() == ""


@given(ids=st.lists(st.integers(0, len(recorded()["tokens"]) + 3), max_size=40), special=st.booleans())
def test_any_tokens_join_to_the_whole_decoding(small: Tokenizer, ids: list[int], special: bool):
    stream = Detokenizer(small, special)
    said = "".join(map(stream.push, ids)) + stream.flush()
    assert said == small.decode(ids, special=special)


def test_a_character_over_three_tokens():
    stream = Detokenizer(ByteTokenizer())
    assert [stream.push(byte) for byte in "\u20ac!".encode()] == ["", "", "\u20ac", "!"]


def test_an_unfinished_character_shows_only_at_the_end():
    stream = Detokenizer(ByteTokenizer())
    assert [stream.push(byte) for byte in b"a\xf0\x9f"] == ["a", "", ""]
    assert stream.flush() == "\ufffd"
    assert stream.push(0x62) + stream.flush() == "b"


def test_special_tokens_are_silent_unless_asked_for(small: Tokenizer):
    ids = small.encode("a<|im_end|>b")
    assert [Detokenizer(small).push(token) for token in ids] == ["a", "", "b"]
    assert [Detokenizer(small, special=True).push(token) for token in ids] == ["a", "<|im_end|>", "b"]


def test_smollm2_streams_every_text(smollm2_path: Path):
    tokenizer = Tokenizer.from_gguf(smollm2_path)
    for text in ("\U0001f468\u200d\U0001f469\u200d\U0001f467 na\u00efve \u4f60\u597d", "x\n\n\ty  z"):
        stream = Detokenizer(tokenizer)
        pieces = [stream.push(token) for token in tokenizer.encode(text)]
        assert "".join(pieces) + stream.flush() == text
        assert "\ufffd" not in "".join(pieces)
