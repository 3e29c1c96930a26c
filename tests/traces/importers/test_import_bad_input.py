"""Sources that are damaged, or something else: refused with file, row, field and value, and nothing is left behind."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress

import pytest
from coresident.actors.errors import InvalidRequest, TraceInvalid
from coresident.traces.importers import FORMATS, Settings, import_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from imported_traces import AZURE, BAILIAN, BURSTGPT, MOONCAKE, SMALL, VLLM, asked, imported, session


def moon(**fields):
    row = {"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]} | fields
    return json.dumps({name: value for name, value in row.items() if value is not ...})


def weka(**fields):
    requests = [{key: value for key, value in (asked(1.0, 130, [1, 2]) | fields).items() if value is not ...}]
    return json.dumps(session(requests=requests))


CASES = [
    ("mooncake", moon(input_length=0), "row 1: input_length is 0: a prompt's length is a whole number from 1"),
    ("mooncake", moon(input_length=-600), "input_length is -600"),
    ("mooncake", moon(input_length=2**40), "input_length is 1099511627776"),
    ("mooncake", moon(output_length=1.5), "output_length is 1.5"),
    ("mooncake", moon(output_length=True), "output_length is True"),
    ("mooncake", moon(output_length=...), "output_length missing; there are timestamp, input_length, hash_ids"),
    ("mooncake", moon() + "\n" + moon(output_length=...), "row 2: output_length is missing; there are timestamp"),
    ("mooncake", moon(timestamp=-1), "timestamp is -1: a time in milliseconds is a number from 0"),
    ("mooncake", moon(timestamp=float("nan")), "row 1: not JSON: NaN is not a number"),
    ("mooncake", moon(timestamp=float("-inf")), "-Infinity is not a number"),
    ("mooncake", moon(timestamp="soon"), "timestamp is 'soon'"),
    ("mooncake", moon(hash_ids=[0, -1]), "hash_ids is -1: a block's id"),
    ("mooncake", moon(hash_ids="01"), "hash_ids is '01': a list of ids is needed"),
    (
        "mooncake",
        moon(hash_ids=[0]),
        "600 tokens have 1 ids of blocks: with 512 tokens a block it must be 2",
    ),
    ("mooncake", moon(hash_ids=list(range(38))), "it must be 2; blocks of 16 tokens would fit .--block-size"),
    ("mooncake", moon(hash_ids=[]), "600 tokens have 0 ids of blocks.*no block size fits"),
    ("mooncake", moon(timestamp=5) + "\n" + moon(timestamp=3), "row 2: its time is 0.002 s before .*sort the file"),
    ("mooncake", moon() + '\n{"timestamp": 2, "input_le', "row 2: not JSON: .*the file may be cut here"),
    ("mooncake", moon() + "\n[1]", "row 2: not a JSON object but list"),
    ("mooncake", moon() + "\n" + "[" * 100_000, "row 2: not JSON"),
    ("mooncake", "", "row 0: there are no records; it looks like an empty file"),
    ("mooncake", "\n\n", "there are no records"),
    ("mooncake", b"\xff\xfe" + MOONCAKE.encode("utf-16-le"), "cannot be read: .*codec can't decode"),
    ("azure", AZURE.replace("374", "-374"), "row 2: ContextTokens is '-374'"),
    ("azure", AZURE.replace("374", "0"), "row 2: ContextTokens is 0"),
    ("azure", AZURE.replace("374", "nan"), "ContextTokens is 'nan'"),
    ("azure", AZURE.replace("2023-11-16 18:15:50", "yesterday"), "row 3: TIMESTAMP is 'yesterday.9951690'"),
    ("azure", AZURE.replace("18:15:50", "18:15:40"), "row 3: its time is 5.685421 s before"),
    ("azure", AZURE.replace("GeneratedTokens", "Tokens"), "row 1: GeneratedTokens missing; there are TIMESTAMP, "),
    ("azure", AZURE + "2023-11-16 18:15:51.0,12", "row 4: has 2 values for 3 columns; the file may be cut here"),
    ("azure", AZURE + '"2023-11-16', "row 4: not CSV"),
    ("azure", AZURE.splitlines()[0], "there are no requests in it"),
    ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n", "a column is named twice"),
    ("burstgpt", BURSTGPT.replace("472", "0"), "row 2: Request tokens is 0"),
    ("burstgpt", BURSTGPT.replace("45.5", "inf"), "row 3: Timestamp is 'inf'"),
    ("burstgpt", BURSTGPT.replace("Model", "Engine"), "Model missing"),
    (
        "bailian",
        BAILIAN.replace("[7, 8]", "[7, 8, 9]"),
        "20 tokens have 3 ids of blocks: with 16 tokens a block",
    ),
    ("bailian", BAILIAN.replace('"chat_id": 2', '"chat_id": null'), "row 2: chat_id is None: a name is needed"),
    (
        "vllm",
        VLLM.replace("27537.0,", "27536.55,"),
        "first_token_ts is 27536.55 s, before scheduled_ts at 27536.6 s",
    ),
    ("vllm", VLLM.replace("27536.75", "27536.25"), "row 2: its time is 0.25 s before"),
    ("vllm", VLLM.replace("last_token_ts", "last"), "last_token_ts missing"),
    ("vllm", "last_by_row".join(VLLM.rsplit("last_token_ts", 1)), "row 2: last_token_ts is missing"),
    ("weka", weka(**{"in": 64}), "request 1: in and hash_ids do not agree: 64 tokens have 2 ids"),
    ("weka", weka(**{"in": 0}), "request 1: in is 0"),
    ("weka", weka(api_time=-2.0), "request 1: api_time is -2.0"),
    ("weka", weka(api_time=2.0, ttft=3.0), "request 1: ttft is 3.0 s, longer than api_time of 2.0 s"),
    ("weka", weka(model=...), "request 1: model is missing; there are t, type, in"),
    ("weka", json.dumps(session(block_size=0)), "session: block_size is 0"),
    ("weka", json.dumps(session(block_size=16)), "request 1: in and hash_ids do not agree.*64 tokens would fit"),
    ("weka", json.dumps(session(hash_id_scope="universe")), "hash_id_scope is 'universe': known are local, global"),
    ("weka", json.dumps(session(requests=[7])), "request 1: not a JSON object"),
    ("weka", json.dumps(session(requests={})), "requests are no list"),
    ("weka", json.dumps(session(requests=[])), "there are no requests in it"),
    ("weka", json.dumps(session(requests=[asked(5.0, 64, [1]), asked(2.0, 64, [1])])), "request 2: t is 2.0 s, before"),
    ("weka", json.dumps(session())[:-20], "not JSON: .*the file may be cut here"),
    (
        "weka",
        json.dumps(session(requests=[asked(0.0, 64, [1]), asked(9e9, 64, [1], 9e9)])),
        "more than 292 years after",
    ),
    ("weka", json.dumps(session()).replace("27500", "31000"), "request 2: duration_ms is 31000.0, but its result came"),
]


@pytest.mark.parametrize(("name", "data", "what"), CASES, ids=[f"{name}: {what[:60]}" for name, _, what in CASES])
def test_bad_sources_are_refused_and_leave_nothing(tmp_path, name, data, what):
    with pytest.raises(TraceInvalid, match=rf"source\.{name}.*{what}"):
        imported(tmp_path, name, data)
    assert [path.name for path in tmp_path.iterdir()] == [f"source.{name}"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("other", FORMATS)
def test_a_source_of_another_format_is_told_what_it_looks_like(tmp_path, name, other):
    if name == other:
        return
    expected = f"(missing|not JSON).*coresident import {other} INPUT OUTPUT"
    if (name, other) == ("mooncake", "bailian"):
        expected = "with 512 tokens a block it must be 1; blocks of 16 tokens would fit"
    with pytest.raises(TraceInvalid, match=expected):
        imported(tmp_path, name, SMALL[other])


def test_a_trace_of_ours_needs_no_import(tmp_path):
    imported(tmp_path, "azure", AZURE)
    with pytest.raises(TraceInvalid, match="may be a trace of coresident, which needs no import"):
        import_trace("mooncake", tmp_path / "out.jsonl", tmp_path / "again.jsonl")


def test_a_gzip_file_that_was_cut_is_known_as_cut(tmp_path):
    packed = gzip.compress(MOONCAKE.encode())
    for length in (5, len(packed) // 2, len(packed) - 4):
        with pytest.raises(TraceInvalid, match=r"cannot be read|there are no records|cut"):
            imported(tmp_path, "mooncake", packed[:length])
    with pytest.raises(TraceInvalid, match="cannot be read"):
        imported(tmp_path, "mooncake", packed[:20] + b"\0\0\0\0\0" + packed[25:])


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(list(FORMATS)), place=st.integers(0), junk=st.binary(max_size=8), cut=st.booleans())
def test_a_damaged_source_is_imported_or_refused_and_never_crashes(tmp_path_factory, name, place, junk, cut):
    whole = SMALL[name].encode()
    place %= len(whole)
    data = whole[:place] + junk + (b"" if cut else whole[place + len(junk) :])
    with suppress(TraceInvalid):
        imported(tmp_path_factory.getbasetemp(), name, data)


@pytest.mark.parametrize(
    ("name", "wanted", "what"),
    [
        ("parquet", {}, "format is 'parquet': known are mooncake, azure"),
        ("azure", {"prepare": True}, "prepare was asked for, but azure does not tell when turns ended"),
        ("bailian", {"prepare": True}, "bailian does not tell when turns ended"),
        ("mooncake", {"decide_before_turns": True}, "mooncake does not tell which requests are turns"),
        ("azure", {"open_loop": True}, "azure does not tell when requests ended"),
        ("mooncake", {"shared_head": 5}, "mooncake tells itself what prompts share"),
        ("azure", {"spacing_s": 5.0}, "spacing was asked for"),
        ("azure", {"decisions": 1.5}, "decisions is 1.5: a share from 0 to 1"),
        ("azure", {"decisions": float("nan")}, "decisions is nan"),
        ("weka", {"spacing_s": float("inf")}, "spacing is inf"),
        ("azure", {"limit": 0}, "limit is 0"),
        ("azure", {"seed": -1}, "seed is -1"),
        ("azure", {"block_size": 15}, "block_size is 15: a number of tokens from 16 to 65536"),
        ("mooncake", {"block_size": 0}, "block_size is 0"),
        ("azure", {"block_size": 2**20}, "block_size is 1048576"),
        ("azure", {"shared_head": -1}, "shared_head is -1"),
    ],
)
def test_settings_without_meaning_are_refused(tmp_path, name, wanted, what):
    (tmp_path / "s").write_text(AZURE)
    with pytest.raises(InvalidRequest, match=what):
        import_trace(name, tmp_path / "s", tmp_path / "out.jsonl", Settings(**wanted))


def test_files_that_are_not_there_or_in_the_way_are_refused(tmp_path):
    source = tmp_path / "s"
    source.write_text(AZURE)
    with pytest.raises(TraceInvalid, match="nothing: No such file"):
        import_trace("azure", tmp_path / "nothing", tmp_path / "out.jsonl")
    with pytest.raises(InvalidRequest, match="is the source itself"):
        import_trace("azure", source, source)
    with pytest.raises(InvalidRequest, match="is a folder or a device: name a file"):
        import_trace("azure", source, tmp_path)
    with pytest.raises(InvalidRequest, match="is a folder: azure is read from one file"):
        import_trace("azure", tmp_path, tmp_path / "out.jsonl")
    with pytest.raises(InvalidRequest, match=r"missing.out\.jsonl cannot be written: No such file"):
        import_trace("azure", source, tmp_path / "missing" / "out.jsonl")
    with pytest.raises(TraceInvalid, match=r"the folder has no \.json files"):
        import_trace("weka", tmp_path, tmp_path / "out.jsonl")
    assert source.read_text() == AZURE


def test_sessions_of_one_folder_must_have_ids_of_their_own(tmp_path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.json").write_text(json.dumps(session("same")))
    with pytest.raises(TraceInvalid, match=r"b\.json, session: id is 'same', as in .*a\.json"):
        import_trace("weka", folder, tmp_path / "out.jsonl")


def test_sessions_of_one_folder_must_have_blocks_of_one_size(tmp_path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(session("a")))
    (folder / "b.json").write_text(json.dumps(session("b", block_size=16)))
    with pytest.raises(TraceInvalid, match=r"b\.json, session: block_size is 16, but blocks of 64 tokens"):
        import_trace("weka", folder, tmp_path / "out.jsonl")
