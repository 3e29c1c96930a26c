"""Tokenizers built from GGUF metadata give llama.cpp's ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.models.tokenizer import Tokenizer, load_tokenizer
from small_vocabulary import FIXTURES, recorded, write_gguf, write_scored_gguf

PRE = ["smollm", "gpt-2", "qwen2", "qwen35", "llama-bpe", "default"]


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(smollm2_path)


@pytest.fixture(scope="module")
def oracle() -> dict:
    return json.loads((FIXTURES / "tokens_llamacpp.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("pre", PRE)
def test_small_vocabulary_equals_llamacpp(tmp_path: Path, pre: str):
    small = recorded()
    tokenizer = Tokenizer.from_gguf(write_gguf(tmp_path / "m.gguf", ggml__pre=pre))
    assert len(small["texts"]) > 200
    wrong = [text for text, ids in zip(small["texts"], small[pre], strict=True) if list(tokenizer.encode(text)) != ids]
    assert wrong == []


@pytest.mark.parametrize("pre", PRE)
def test_special_texts_read_literally_equal_llamacpp(tmp_path: Path, pre: str):
    small = recorded()
    tokenizer = Tokenizer.from_gguf(write_gguf(tmp_path / "m.gguf", ggml__pre=pre))
    literal = small[f"{pre} literal"]
    for text, ids in zip(small["texts"][-len(literal) :], literal, strict=True):
        assert list(tokenizer.encode(text, special=False)) == ids
        # The choice is of one call, not of the tokenizer.
        assert tokenizer.encode("<|im_end|>") == (2,)


def test_scored_vocabulary_equals_llamacpp(tmp_path: Path):
    scored = recorded()["scored"]
    tokenizer = Tokenizer.from_gguf(write_scored_gguf(tmp_path / "m.gguf"))
    texts = recorded()["texts"] + scored["runs"]
    wrong = [text for text, ids in zip(texts, scored["ids"], strict=True) if list(tokenizer.encode(text)) != ids]
    assert wrong == []
    for text, ids in zip(scored["runs"], scored["literal"], strict=True):
        assert list(tokenizer.encode(text, special=False)) == ids


def test_scored_vocabulary_spells_every_text(tmp_path: Path):
    tokenizer = Tokenizer.from_gguf(write_scored_gguf(tmp_path / "m.gguf", ggml__add_space_prefix=False))
    for text in recorded()["texts"]:
        assert tokenizer.decode(tokenizer.encode(text), special=True) == text
    assert tokenizer.encode_prompt("a")[0] == tokenizer.bos == 1
    assert tokenizer.stop_tokens == {2}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"ggml__scores": None}, "tokenizer.ggml.scores"),
        ({"ggml__scores": [1.0]}, "tokenizer.ggml.scores"),
        ({"ggml__scores": [float("nan")] * len(recorded()["scored"]["tokens"])}, "tokenizer.ggml.scores"),
        (
            {"ggml__tokens": ["a", "b"], "ggml__scores": [0.0, 1.0], "ggml__token_type": [1, 1]},
            "tokenizer.ggml.tokens",
        ),
    ],
)
def test_what_is_wrong_with_scores_is_named(tmp_path: Path, changed: dict, field: str):
    with pytest.raises(ArtifactInvalid) as caught:
        Tokenizer.from_gguf(write_scored_gguf(tmp_path / "m.gguf", **changed))
    assert caught.value.details["field"] == field


def test_R17_smollm2_equals_llamacpp(smollm2: Tokenizer, oracle: dict):
    assert len(oracle["texts"]) >= 200
    pairs = zip(oracle["texts"], oracle["smollm"], strict=True)
    assert [text for text, ids in pairs if list(smollm2.encode(text)) != ids] == []


def test_smollm2_special_texts_read_literally_equal_llamacpp(smollm2: Tokenizer, oracle: dict):
    assert oracle["literal"]
    for i, text in enumerate(oracle["texts"]):
        ids = oracle["literal"].get(str(i), oracle["smollm"][i])
        assert list(smollm2.encode(text, special=False)) == ids


def test_E3_smollm2_stops_at_its_ends_of_turn_and_document(smollm2: Tokenizer, oracle: dict):
    assert smollm2.stop_tokens == {0, 2}
    assert smollm2.stop_tokens <= set(oracle["stop_tokens"])
    assert (smollm2.bos, smollm2.add_bos, smollm2.vocabulary) == (1, False, 49152)


def test_R17_smollm2_keeps_a_long_prompt_whole(smollm2: Tokenizer):
    text = "All of it, please. " * 20_000
    assert smollm2.decode(smollm2.encode(text)) == text


@pytest.mark.parametrize("pre", PRE)
def test_decode_returns_the_text(tmp_path: Path, pre: str):
    tokenizer = Tokenizer.from_gguf(write_gguf(tmp_path / "m.gguf", ggml__pre=pre))
    for text in recorded()["texts"]:
        assert tokenizer.decode(tokenizer.encode(text), special=True) == text


def test_special_tokens_have_no_text_unless_asked_for(tmp_path: Path):
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf"))
    ids = tokenizer.encode("a<|im_end|><think>b")
    assert tokenizer.decode(ids) == "a<think>b"
    assert tokenizer.decode(ids, special=True) == "a<|im_end|><think>b"
    assert tokenizer.special_tokens == {0, 1, 2}


@pytest.mark.parametrize(
    ("pre", "declared", "begins"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("smollm", None, False), ("smollm", True, True)],
)
def test_prompts_begin_with_the_first_token_where_the_model_wants_it(tmp_path: Path, pre, declared, begins):
    path = write_gguf(tmp_path / "m.gguf", ggml__pre=pre, ggml__add_bos_token=declared)
    tokenizer = Tokenizer.from_gguf(path)
    plain = tokenizer.encode("hello")
    assert tokenizer.encode_prompt("hello") == ((1, *plain) if begins else plain)
    # A template may have written it already; it must not come twice.
    assert tokenizer.encode_prompt("<|im_start|>hello") == (1, *plain)


def test_names_and_template_come_from_the_metadata(tmp_path: Path):
    tokenizer = Tokenizer.from_gguf(write_gguf(tmp_path / "m.gguf", chat_template="{{ bos_token }}"))
    assert tokenizer.names == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert tokenizer.chat_template == "{{ bos_token }}"
    assert tokenizer.stop_tokens == {0, 2}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"ggml__pre": "of-tomorrow"}, "tokenizer.ggml.pre"),
        ({"ggml__model": "of-tomorrow"}, "tokenizer.ggml.model"),
        ({"ggml__model": None}, "tokenizer.ggml.model"),
        ({"ggml__tokens": None}, "tokenizer.ggml.tokens"),
        ({"ggml__tokens": ["a", "b", "a"]}, "tokenizer.ggml.tokens"),
        ({"ggml__tokens": "a"}, "tokenizer.ggml.tokens"),
        ({"ggml__tokens": [1, 2]}, "tokenizer.ggml.tokens"),
        ({"ggml__merges": None}, "tokenizer.ggml.merges"),
        ({"ggml__merges": ["nonsense"]}, "tokenizer.ggml.merges[0]"),
        ({"ggml__merges": ["a \u4f60"]}, "tokenizer.ggml.merges[0]"),
        ({"ggml__token_type": [1, 2, 3]}, "tokenizer.ggml.token_type"),
        ({"ggml__eos_token_id": 1_000_000}, "tokenizer.ggml.eos_token_id"),
        ({"ggml__bos_token_id": "one"}, "tokenizer.ggml.bos_token_id"),
        ({"ggml__add_bos_token": 1}, "tokenizer.ggml.add_bos_token"),
        ({"chat_template": 5}, "tokenizer.chat_template"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changed: dict, field: str):
    path = write_gguf(tmp_path / "m.gguf", **changed)
    with pytest.raises(ArtifactInvalid) as caught:
        Tokenizer.from_gguf(path)
    assert caught.value.details["field"] == field
    assert caught.value.details["file"] == str(path)
    assert field in caught.value.message


def test_a_damaged_or_missing_file_is_named(tmp_path: Path):
    whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) // 2])
    for path in (cut, tmp_path / "absent.gguf"):
        with pytest.raises(ArtifactInvalid, match=path.name):
            load_tokenizer(path)


def test_a_token_that_is_no_text_is_named(tmp_path: Path):
    path = write_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"<think>", b"<th\xffnk>"))
    with pytest.raises(ArtifactInvalid, match=r"tokens\[\d+\].*not valid UTF-8"):
        Tokenizer.from_gguf(path)
