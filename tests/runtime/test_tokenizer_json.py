"""Tokenizers from Hugging Face folders, the byte tokenizer, and what all tokenizers have in common."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.models.pieces import byte_alphabet, marked_spaces
from coresident.runtime.models.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from small_vocabulary import recorded, write_folder, write_gguf, write_scored_gguf


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "chat_template": "T"}
    return write_folder(tmp_path_factory.mktemp("hf"), tokenizer_config=config)


def test_R17_folder_and_gguf_give_the_same_ids_whole(folder: Path, tmp_path: Path):
    # The folder's tokenizer.json asks for truncation to four tokens, which must not happen.
    ours, theirs = load_tokenizer(folder), Tokenizer.from_gguf(write_gguf(tmp_path / "m.gguf"))
    for text in recorded()["texts"]:
        assert ours.encode(text) == theirs.encode(text)
        assert ours.encode(text, special=False) == theirs.encode(text, special=False)
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))
    assert ours.vocabulary == theirs.vocabulary
    assert ours.special_tokens == theirs.special_tokens
    assert ours.stop_tokens == theirs.stop_tokens
    assert (ours.bos, ours.names, ours.chat_template) == (theirs.bos, theirs.names, "T")


def test_a_folder_with_marked_spaces_equals_its_gguf(tmp_path: Path):
    gguf_file = Tokenizer.from_gguf(write_scored_gguf(tmp_path / "m.gguf"))
    state = json.loads(gguf_file.inner.to_str())
    steps = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]
    state["decoder"] = {"type": "Sequence", "decoders": [*steps, {"type": "Fuse"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    folder = load_tokenizer(tmp_path)
    for text in recorded()["texts"]:
        ids = folder.encode(text)
        assert ids == gguf_file.encode(text)
        assert folder.decode(ids, special=True) == gguf_file.decode(ids, special=True)


@pytest.mark.parametrize(("declared", "begins"), [(None, True), (True, True), (False, False)])
def test_a_post_processor_tells_whether_prompts_begin_with_the_first_token(tmp_path: Path, declared, begins):
    config = {"bos_token": "<|im_start|>"} | ({} if declared is None else {"add_bos_token": declared})
    folder = write_folder(tmp_path, tokenizer_config=config)
    state = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    first = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    tokenizer = load_tokenizer(folder)
    plain = tokenizer.encode("a")
    assert plain[0] != 1
    assert tokenizer.encode_prompt("a") == ((1, *plain) if begins else plain)


def test_stop_tokens_are_all_that_the_files_declare(tmp_path: Path):
    folder = write_folder(tmp_path, generation_config={"eos_token_id": [7, 9]}, config={"eos_token_id": 8})
    assert load_tokenizer(folder).stop_tokens == {0, 2, 7, 8, 9}


@pytest.mark.parametrize("template", ["A", [{"name": "default", "template": "A"}, {"name": "rag", "template": "B"}]])
def test_templates_in_the_configuration(tmp_path: Path, template):
    folder = write_folder(tmp_path, tokenizer_config={"chat_template": template})
    assert load_tokenizer(folder).chat_template == "A"
    (folder / "chat_template.jinja").write_text("C", encoding="utf-8")
    assert load_tokenizer(folder).chat_template == "C"


@pytest.mark.parametrize(
    ("files", "field"),
    [
        ({"generation_config": {"eos_token_id": "two"}}, "eos_token_id"),
        ({"generation_config": {"eos_token_id": [2, -1]}}, "eos_token_id"),
        ({"config": {"eos_token_id": True}}, "eos_token_id"),
        ({"tokenizer_config": {"bos_token": 3}}, "bos_token"),
        ({"tokenizer_config": {"add_bos_token": "yes"}}, "add_bos_token"),
        ({"tokenizer_config": {"chat_template": {"a": 1}}}, "chat_template"),
        ({"tokenizer_config": [1]}, "content"),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(tmp_path: Path, files: dict, field: str):
    folder = write_folder(tmp_path, **files)
    with pytest.raises(ArtifactInvalid) as caught:
        load_tokenizer(folder)
    assert caught.value.details["field"] == field
    assert next(iter(files)) in caught.value.message


def test_an_unreadable_tokenizer_is_named(tmp_path: Path):
    with pytest.raises(ArtifactInvalid, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ArtifactInvalid, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_decoder_of_another_kind_is_refused(folder: Path, tmp_path: Path):
    state = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    state["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ArtifactInvalid, match="WordPiece"):
        load_tokenizer(tmp_path)


def test_one_tokenizer_serves_several_threads(folder: Path):
    tokenizer = load_tokenizer(folder)
    text = "x<|im_end|>y " * 50
    expected = {special: tokenizer.encode(text, special=special) for special in (True, False)}
    wrong: list[bool] = []

    def work(special: bool) -> None:
        wrong.extend(special for _ in range(200) if tokenizer.encode(text, special=special) != expected[special])

    threads = [threading.Thread(target=work, args=(special,)) for special in (True, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_are_tokens_of_the_synthetic_model(text: str):
    tokenizer = load_tokenizer(None)
    assert tokenizer.encode(text) == tuple(text.encode())
    assert tokenizer.encode_prompt(text) == tokenizer.encode(text, special=False)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_E5_synthetic_tokenizer_has_256_tokens_and_no_end():
    tokenizer = ByteTokenizer()
    assert (tokenizer.vocabulary, tokenizer.stop_tokens, tokenizer.bos) == (256, frozenset(), None)
    assert [tokenizer.token_bytes(i) for i in range(256)] == [bytes([i]) for i in range(256)]


@pytest.mark.parametrize("synthetic", [True, False])
def test_ids_outside_the_vocabulary(folder: Path, synthetic: bool):
    tokenizer = load_tokenizer(None if synthetic else folder)
    assert tokenizer.token_bytes(tokenizer.vocabulary + 5) == b""
    with pytest.raises(InvalidRequest, match="-1"):
        tokenizer.token_bytes(-1)


@pytest.mark.parametrize("synthetic", [True, False])
def test_a_lone_surrogate_is_refused_with_its_place(folder: Path, synthetic: bool):
    tokenizer = load_tokenizer(None if synthetic else folder)
    with pytest.raises(InvalidRequest) as caught:
        tokenizer.encode("ab\ud800c")
    assert caught.value.details["position"] == 2


def test_the_byte_alphabet_is_a_bijection():
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert byte_alphabet()["\u0120"] == ord(" ")


@pytest.mark.parametrize(
    ("piece", "spelt"), [("\u2581the", b" the"), ("<0x0A>", b"\n"), ("<0xff>", b"\xff"), ("<0x0A", b"<0x0A")]
)
def test_pieces_with_marked_spaces(piece: str, spelt: bytes):
    assert marked_spaces(piece) == spelt
