"""The format: what is written is read back, and nothing else is taken for a trace."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from types import UnionType
from typing import get_args, get_type_hints

import attrs
import pytest
from coresident.actors.errors import TraceInvalid
from coresident.traces import fields
from coresident.traces.codec import Malformed, decode, decode_header, encode, parse
from coresident.traces.events_schedule import Measures
from coresident.traces.events_workload import Content
from coresident.traces.format import EVENTS, EndOfTrace
from coresident.traces.header import config_of, header_of
from coresident.traces.reader import TraceReader
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_runs import modelled_assembly, record_chat

NUMBERS = st.integers(0, 2**63 - 1)
WORDS = {
    ("Grant", "work_class"): fields.CLASSES,
    ("Grant", "kind"): fields.KINDS,
    ("ArriveGeneration", "work_class"): fields.CLASSES,
    ("Step", "outcome"): fields.STEP_OUTCOMES,
    ("Reuse", "kind"): fields.REUSE_KINDS,
    ("Drop", "why"): fields.DROPS,
    ("EndGeneration", "outcome"): fields.OUTCOMES,
    ("EndDecision", "outcome"): fields.OUTCOMES,
    ("EndPreparation", "outcome"): fields.PREPARED,
    ("ArriveCheckpoint", "action"): fields.FILES,
    ("EndCheckpoint", "outcome"): fields.FILED,
    ("Ready", "state"): fields.STATES,
    ("PolicyFaulted", "policy"): fields.POLICIES,
    ("Ended", "outcome"): (None, *fields.STEP_OUTCOMES),
    ("Charge", "kind"): fields.KINDS,
}


@st.composite
def contents(draw):
    ids = draw(st.none() | st.lists(NUMBERS, max_size=4).map(tuple))
    tokens = draw(NUMBERS) if ids is None else len(ids)
    shares = draw(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=2).map(tuple))
    return Content(tokens, draw(st.lists(NUMBERS, max_size=4).map(tuple)), shares, ids)


KINDS = {
    int: NUMBERS,
    str: st.text(max_size=8),
    bool: st.booleans(),
    Content: contents(),
    Measures: st.builds(Measures, *[NUMBERS] * 5),
    tuple[Content, ...]: st.lists(contents(), max_size=2).map(tuple),
    tuple[str, ...]: st.lists(st.text(max_size=4), max_size=3).map(tuple),
    tuple[int, ...]: st.lists(NUMBERS, max_size=3).map(tuple),
    type(None): st.none(),
}


def values(cls, name, kind):
    if (cls.__name__, name) in WORDS:
        return st.sampled_from(WORDS[cls.__name__, name])
    if isinstance(kind, UnionType):
        return st.one_of([values(cls, name, part) for part in get_args(kind)])
    if kind not in KINDS and attrs.has(kind):
        return built(kind)
    if kind not in KINDS:
        return st.lists(built(get_args(kind)[0]), max_size=2).map(tuple)
    return KINDS[kind]


def built(cls):
    return st.builds(cls, **{name: values(cls, name, kind) for name, kind in get_type_hints(cls).items()})


def events():
    return st.sampled_from(list(EVENTS.values())).flatmap(built)


@settings(deadline=None)
@given(events())
def test_every_event_is_read_as_it_was_written(event):
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == event


def test_the_header_is_read_as_it_was_written_and_gives_the_configuration_back():
    assembly = modelled_assembly()
    header = header_of(assembly)
    assert decode_header(parse(encode(header))) == header
    config, warnings = config_of(header)
    assert config == assembly.config
    assert warnings == ()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"type":"yield","at":1,"grant":1,"step":"s","why":2}', "unknown fields why"),
        (b'{"type":"yield","at":1,"grant":1}', "'step' is missing"),
        (b'{"type":"yield","at":-1,"grant":1,"step":"s"}', r"-1 is not a whole number.*yield\.at"),
        (b'{"type":"yield","at":1.5,"grant":1,"step":"s"}', r"1\.5 is not a whole number"),
        (b'{"type":"yield","at":true,"grant":1,"step":"s"}', "True is not a whole number"),
        (b'{"type":"yield","at":NaN,"grant":1,"step":"s"}', "NaN"),
        (b'{"type":"yield","at":9223372036854775808,"grant":1,"step":"s"}', "whole number from 0"),
        (b'{"type":"yield","at":1,"at":2,"grant":1,"step":"s"}', "twice"),
        (b'{"type":"yield","at":1,"grant":1,"step":7}', "7 is not a string"),
        (b'{"type":"step","at":1,"grant":1,"step":"s","outcome":"vanished"}', "outcome is 'vanished': known are"),
        (b'{"type":"step","at":1,"grant":1,"step":"s","outcome":"finished","measured":[1]}', "not an object"),
        (b'{"type":"tokens","at":1,"request":"r","gaps_ns":"12"}', "'12' is not a list"),
        (b'{"type":"prepare","at":1}', "type is 'prepare': known are"),
        (b'{"at":1}', "type is None"),
        (b"[1]", "not a JSON object"),
        (b'{"type":', "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"a":' * 100_000, "nests too deeply|not JSON"),
        (b'{"type":"yield","at":' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_line_that_is_not_of_the_format_names_field_and_value(line, what):
    with pytest.raises(Malformed, match=what):
        decode(line)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The bytes of a small whole trace."""
    path = tmp_path_factory.mktemp("short") / "short.jsonl"
    record_chat(path, story=lambda client: client.decide("d", [[1, 2]]))
    return path.read_bytes()


def read(path, data):
    path.write_bytes(data)
    with TraceReader(path) as reader:
        return list(reader)


def sealed(lines):
    """Lines with a last line that fits them: what a writer with other ideas would have written."""
    body = b"".join(lines)
    return body + encode(EndOfTrace(len(lines) - 1, hashlib.sha256(body).hexdigest(), True))


def test_a_trace_cut_anywhere_is_known_as_cut(short, tmp_path):
    path = tmp_path / "cut.jsonl"
    assert len(read(path, short)) > 10
    for length in range(0, len(short), 7):
        with pytest.raises(TraceInvalid, match=r"cut\.jsonl.* (cut|empty|ends here|JSON)"):
            read(path, short[:length])


def test_the_message_says_at_which_line_a_cut_trace_ends(short, tmp_path):
    lines = short.splitlines(keepends=True)
    with pytest.raises(TraceInvalid, match=r"line 5: the trace ends here, after 4 events, without its last line"):
        read(tmp_path / "t.jsonl", b"".join(lines[:5]))
    with pytest.raises(TraceInvalid, match=r"line 6: the trace is cut within this line"):
        read(tmp_path / "t.jsonl", b"".join(lines[:6])[:-3])


def test_a_flipped_bit_anywhere_is_found(short, tmp_path):
    path = tmp_path / "flip.jsonl"
    for place in range(0, len(short), 7):
        changed = bytearray(short)
        changed[place] ^= 1 << place % 7
        with pytest.raises(TraceInvalid, match=r"flip\.jsonl"):
            read(path, bytes(changed))


@settings(deadline=None)
@given(place=st.integers(0), value=st.integers(0, 255))
def test_a_changed_byte_is_never_a_crash(short, tmp_path_factory, place, value):
    path = tmp_path_factory.getbasetemp() / "byte.jsonl"
    changed = bytearray(short)
    changed[place % len(short)] = value
    if bytes(changed) == short:
        return
    with pytest.raises(TraceInvalid):
        read(path, bytes(changed))


def edited(short, index, **changes):
    """A whole, sealed trace with changes in one line; ``None`` removes a field."""
    lines = short.splitlines(keepends=True)[:-1]
    data = json.loads(lines[index]) | changes
    lines[index] = json.dumps({key: value for key, value in data.items() if value is not None}).encode() + b"\n"
    return sealed(lines)


def line_of(short, word):
    return next(index for index, line in enumerate(short.splitlines()) if f'"type":"{word}"'.encode() in line)


@pytest.mark.parametrize(
    ("word", "changes", "what"),
    [
        ("header", {"version": 2}, "version is 2: this coresident reads version 1"),
        ("header", {"version": None}, "version is None"),
        ("header", {"version": True}, "version is True"),
        ("header", {"schema": "somebody.else"}, "schema is 'somebody.else'"),
        ("header", {"surprise": 1}, "unknown fields surprise"),
        ("header", {"content": "everything"}, "content is 'everything': known are counts, tokens"),
        ("header", {"block_size": 0}, "block_size is 0"),
        ("header", {"models": []}, "models have no 'generation'"),
        ("header", {"policies": {}}, "policies name nothing"),
        ("arrive.decision", {"request": 5}, "5 is not a string"),
        ("arrive.decision", {"at": 0}, "at is 0, before the event ahead"),
        ("end.decision", {"request": "other"}, "'other', which has not arrived or has ended"),
        ("end.decision", {"outcome": "vanished"}, "outcome is 'vanished'"),
        ("grant", {"kind": "nap"}, "kind is 'nap'"),
        ("step", {"grant": 99}, "grant is 99: the latest grant is 1"),
    ],
)
def test_a_wrong_value_in_a_whole_trace_names_file_line_field_and_value(short, tmp_path, word, changes, what):
    index = 0 if word == "header" else line_of(short, word)
    with pytest.raises(TraceInvalid, match=rf"t\.jsonl, line {index + 1}: .*{what}"):
        read(tmp_path / "t.jsonl", edited(short, index, **changes))


def test_grants_must_grow(short, tmp_path):
    lines = short.splitlines(keepends=True)[:-1]
    grants = [index for index, line in enumerate(lines) if b'"type":"grant"' in line]
    lines[grants[1]] = lines[grants[1]].replace(b'"grant":2', b'"grant":1')
    with pytest.raises(TraceInvalid, match="grant is 1, not after grant 1"):
        read(tmp_path / "t.jsonl", sealed(lines))


def test_what_comes_after_the_end_and_missing_lines_are_found(short, tmp_path):
    with pytest.raises(TraceInvalid, match="more after the end"):
        read(tmp_path / "t.jsonl", short + b"\n")
    lines = short.splitlines(keepends=True)
    with pytest.raises(TraceInvalid, match=r"events is \d+, but \d+ were read"):
        read(tmp_path / "t.jsonl", b"".join(lines[:-2] + lines[-1:]))


def test_a_trace_whose_recorder_failed_says_so(short, tmp_path):
    lines = short.splitlines(keepends=True)[:-1]
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    end = encode(EndOfTrace(len(lines) - 1, digest, False, "OSError: disk full"))
    with pytest.raises(TraceInvalid, match=r"complete is false: the recorder failed here \(OSError: disk full\)"):
        read(tmp_path / "t.jsonl", b"".join(lines) + end)


FOREIGN = [
    (b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n", "Azure LLM inference trace"),
    (b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,x\n", "BurstGPT"),
    (b'{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n', "Mooncake"),
    (b'{"id":"t","models":["m"],"block_size":64,"hash_id_scope":"local","requests":[' + b"1," * 70_000, "weka"),
    (b'{"request_id": "bench-0", "input_toks": 2358, "output_toks": 531}\n', "LLMServingSim"),
    (b'{"prompt_tokens": 5, "completion_tokens": 6}\n', "serving benchmark"),
    (b'{\n  "schema_version": 1\n}\n', "JSON document over several lines"),
    (b'{"a": 1}\n', "JSON of another kind"),
    (b"a,b,c,d\n1,2,3,4\n", "CSV file with columns a, b, c"),
    (gzip.compress(b"x"), "gzip"),
    (b"GGUF\x03\x00", "GGUF model file"),
    (b"\x01\x00\x02", "binary"),
    (b"\xff\xfe\xfd", "binary"),
    (b"hello\n", "text file"),
    (b"", "empty file"),
    (b"\n", "without a first line"),
]


@pytest.mark.parametrize(("data", "name"), FOREIGN, ids=[name for _, name in FOREIGN])
def test_other_formats_are_named(tmp_path, data, name):
    with pytest.raises(TraceInvalid, match=f"is .*{re.escape(name)}.*reads traces recorded by coresident"):
        read(tmp_path / "t", data)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "nothing.jsonl", tmp_path):
        with pytest.raises(TraceInvalid, match=re.escape(str(path))):
            TraceReader(path)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_with_a_typed_error(tmp_path_factory, data):
    with pytest.raises(TraceInvalid):
        read(tmp_path_factory.getbasetemp() / "any.bin", data)
