"""Manifests and journals from anywhere: read, or refused with one typed error, in bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.canonical import canonical, parse
from coresident.runtime.store.collect import MANIFESTS
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.journal import NAME, Journal
from coresident.runtime.store.manifest import MAX_BYTES, FileEntry, Manifest, SignedManifest, parse_signed
from coresident.runtime.store.records import MAX_JOURNAL, Contents, Record, read_records
from coresident.runtime.store.shelf import Shelf
from hypothesis import given, settings
from hypothesis import strategies as st

BOUND = 64
"""Most bytes of memory for each byte that a manifest may have."""

SIGNED = SignedManifest(
    Manifest("org/small", (FileEntry("model.gguf", "ab" * 32, 9), FileEntry("b.json", "cd" * 32, 1)), "mlx"),
    "ef" * 32,
    "01" * 64,
)
MANIFEST = SIGNED.text()
FIRST = Contents().following("small", "any", "ab" * 32)
JOURNAL = FIRST.line() + Contents((FIRST,)).following("small", "any", None).line()

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.sampled_from(["ab" * 32, "01" * 64, "any"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=8), inside, max_size=4),
    max_leaves=20,
)
names = st.sampled_from(["model", "files", "device", "created_by", "notes", "name", "digest", "size", "x"])


def read_or_refused(read: Callable[[bytes, str], object], data: bytes) -> object:
    """What was read, or ``None``; any other error than the typed one fails the test, as does a message without end."""
    try:
        return read(data, "fuzzed")
    except ArtifactInvalid as error:
        refusal = error.message
    assert refusal.startswith("fuzzed")
    assert len(refusal) < 2000
    return None


@st.composite
def mutated(draw: st.DrawFn, original: bytes) -> bytes:
    """The original with a few bytes replaced, removed, inserted or repeated."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 20)))
        data[begin:end] = draw(st.binary(max_size=10) | st.just(bytes(data[begin:end]) * 2))
    return bytes(data)


@given(st.binary(max_size=300) | mutated(MANIFEST))
def test_a_manifest_from_anywhere_is_itself_or_refused(data: bytes) -> None:
    read = read_or_refused(parse_signed, data)
    assert read is None or (isinstance(read, SignedManifest) and read.text() == data)


@settings(max_examples=60)
@given(st.dictionaries(names, plain, max_size=6) | plain, st.dictionaries(names, plain, max_size=3))
def test_a_manifest_of_any_shape_is_itself_or_refused(inner: Any, more: dict[str, Any]) -> None:
    content = {**json.loads(MANIFEST), "manifest": inner}
    read_or_refused(parse_signed, canonical(content) + b"\n")
    if isinstance(inner, dict):
        content["manifest"] = {**json.loads(MANIFEST)["manifest"], **inner}
        read_or_refused(parse_signed, canonical(content) + b"\n")
    read_or_refused(parse_signed, canonical({**json.loads(MANIFEST), **more}) + b"\n")


@settings(max_examples=60)
@given(st.dictionaries(names, plain, max_size=4))
def test_a_file_of_any_shape_is_itself_or_refused(entry: dict[str, Any]) -> None:
    content = json.loads(MANIFEST)
    content["manifest"]["files"] = [{"name": "a", "digest": "ab" * 32, "size": 1, **entry}]
    read_or_refused(parse_signed, canonical(content) + b"\n")


@given(st.binary(max_size=300) | mutated(JOURNAL))
def test_a_journal_from_anywhere_is_its_own_records_or_refused(data: bytes) -> None:
    read = read_or_refused(read_records, data)
    assert read is None or (
        isinstance(read, Contents) and b"".join(map(Record.line, read.records)) == data[: read.whole]
    )


@given(mutated(JOURNAL))
def test_R39_a_changed_journal_selects_what_its_whole_records_did_or_nothing(data: bytes) -> None:
    read = read_or_refused(read_records, data)
    if isinstance(read, Contents) and read.records:
        assert JOURNAL.startswith(data[: read.whole])


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from([*attrs.asdict(FIRST), "version", "x"]), plain, max_size=4))
def test_a_record_of_any_shape_with_the_right_checksum_is_itself_or_refused(values: dict[str, Any]) -> None:
    content = {**attrs.asdict(FIRST), "version": 1, **values}
    checksum = hashlib.sha256(canonical(content)).hexdigest()
    line = canonical({**content, "checksum": checksum}) + b"\n"
    read = read_or_refused(read_records, line)
    assert read is None or (isinstance(read, Contents) and read.records[0].line() == line)


@settings(max_examples=30)
@given(st.sampled_from([b"[", b'{"a":', b"[[],", b'["']), st.integers(1, MAX_BYTES))
def test_nesting_as_deep_as_a_file_is_long_is_refused(piece: bytes, length: int) -> None:
    data = (piece * (length // len(piece) + 1))[:length]
    assert read_or_refused(lambda text, file: parse(text, MAX_BYTES, file), data) is None
    assert read_or_refused(parse_signed, data + b"\n") is None
    assert read_or_refused(read_records, data + b"\n") is None


@pytest.mark.parametrize("depth", [1, 7, 8, 9, 100, *range(300, 1200, 20), 50_000])
def test_nesting_of_any_depth_in_any_field_is_refused(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    inner = b'{"files":[' + deep + b'],"model":' + deep + b"}"
    record = b'{"checksum":' + deep + b',"model":' + deep + b"}\n"
    for data in (b'{"format":' + deep + b"}\n", MANIFEST.replace(b'"manifest":{', b'"manifest":' + inner + b',"z":{')):
        assert read_or_refused(parse_signed, data) is None
    assert read_or_refused(read_records, record) is None


LENGTH = MAX_BYTES - len(MANIFEST) - 20
LARGE = {
    "nested": b"[" * LENGTH,
    "files that are none": b'{"files":[' + b"0," * (LENGTH // 2 - 10) + b"0]}",
    "files that are empty": b'{"files":[' + b"{}," * 1000 + b"{}]}",
    "keys": b"{" + b",".join(b'"%d":0' % number for number in range(20_000)) + b"}",
    "one number": b"9" * LENGTH,
    "one text": b'"' + b"\\u0041" * (LENGTH // 6 - 1) + b'"',
}


@pytest.mark.parametrize("inner", LARGE.values(), ids=LARGE)
def test_a_large_manifest_takes_bounded_memory(inner: bytes) -> None:
    data = MANIFEST.replace(b'"manifest":{', b'"manifest":' + inner + b',"z":{')
    assert peak(lambda: read_or_refused(parse_signed, data)) < BOUND * MAX_BYTES


@pytest.mark.parametrize("line", [b"\n", b"x\n", JOURNAL, b"x"], ids=repr)
def test_a_large_journal_takes_bounded_memory(line: bytes) -> None:
    data = line * (MAX_JOURNAL // len(line))
    assert peak(lambda: read_or_refused(read_records, data)) < 8 * MAX_JOURNAL
    assert peak(lambda: read_or_refused(read_records, data + line)) < 8 * MAX_JOURNAL


def peak(work: Callable[[], object]) -> int:
    """Most bytes that Python held for ``work``."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_file_larger_than_is_read_is_never_loaded(tmp_path: Path) -> None:
    kept = tmp_path / MANIFESTS / f"{'ab' * 32}.json"
    kept.parent.mkdir()
    for path in (kept, tmp_path / NAME):
        with path.open("wb") as sparse:
            sparse.truncate(1 << 40)
    with Folder.at(tmp_path) as root:
        for read in (lambda: Shelf(root).get("ab" * 32), Journal(root).read):
            with contextlib.suppress(ArtifactInvalid):
                assert peak(read) < 5 * MAX_JOURNAL
            with pytest.raises(ArtifactInvalid, match="at most"):
                read()
