"""Prefix files: one spelling, every mismatch refused by name, published whole or not at all, damage never a crash."""

from __future__ import annotations

import errno
import os

import attrs
import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid, BackendFault, InvalidRequest
from coresident.actors.work import PrefixFile
from coresident.runtime.backends import prefix_file
from coresident.runtime.backends.prefix_file import look_into, read_prefix, write_prefix
from coresident.runtime.backends.prefix_header import Geometry, PrefixHeader, decode_head, token_bytes, token_hash
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from support.reference import drain

GEOMETRY = Geometry("d" * 64, layers=2, kv_heads=2, head_dim=4)
TOKENS = tuple(range(5, 25))


def pieces() -> list[np.ndarray]:
    return [np.full((20, 4), index, np.float32) for index in range(8)]


def entry(path) -> PrefixFile:
    return PrefixFile(str(path), "launch", "identity", TOKENS, aligned=16, chunk=8)


def write(path, geometry: Geometry = GEOMETRY, **fields) -> PrefixFile:
    file = attrs.evolve(entry(path), **fields)
    drain(write_prefix(file, "reference", geometry, pieces()))
    return file


def read(file: PrefixFile, geometry: Geometry = GEOMETRY, backend: str = "reference") -> list[np.ndarray]:
    into = [np.empty((20, 4), np.float32) for _ in range(8)]
    drain(read_prefix(file, backend, geometry, into))
    return into


@pytest.fixture
def path(tmp_path):
    return tmp_path / "prefix.safetensors"


def test_R67_what_was_written_is_read_back_and_is_a_safetensors_file(path):
    file = write(path)
    assert look_into(str(path), "launch", GEOMETRY.digest) == file
    np.testing.assert_array_equal(np.stack(read(file)), np.stack(pieces()))
    with safe_open(str(path), "np") as stored:
        assert stored.metadata()["format"] == "coresident-prefix"
        assert tuple(stored.get_tensor("tokens")) == TOKENS
        np.testing.assert_array_equal(stored.get_tensor("layers.1.values"), np.stack(pieces()[6:]))
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("field", ["digest", "layers", "kv_heads", "head_dim", "dtype"])
def test_E10_R67_a_file_of_another_geometry_is_refused_by_name(path, field):
    file = write(path)
    value = {"digest": "e" * 64, "dtype": "float16"}.get(field, 3)
    other = attrs.evolve(GEOMETRY, **{field: value})
    with pytest.raises(ArtifactInvalid, match=f"{field} is .*expected {value!r}") as caught:
        read(file, other)
    assert caught.value.details["file"] == str(path)
    assert (caught.value.details["field"], caught.value.details["value"]) == (field, getattr(GEOMETRY, field))


@pytest.mark.parametrize(
    ("field", "value"),
    [("identity", "another"), ("launch", "another"), ("aligned", 8), ("chunk", 4), ("tokens", (*TOKENS[:-1], 99))],
)
def test_R67_a_file_that_changed_since_its_head_was_read_is_refused(path, field, value):
    file = write(path)
    with pytest.raises(ArtifactInvalid, match="token_hash is" if field == "tokens" else f"{field} is"):
        read(attrs.evolve(file, **{field: value}))


def test_R67_a_file_of_another_backend_is_refused(path):
    file = write(path)
    with pytest.raises(ArtifactInvalid, match="backend is 'reference': expected 'other'"):
        read(file, backend="other")


def test_R68_another_launch_is_refused_and_told_that_this_is_deferred(path):
    write(path)
    with pytest.raises(ArtifactInvalid, match=r"launch is 'launch'.*within one launch.*deferred"):
        look_into(str(path), "later", GEOMETRY.digest)


def test_R67_another_model_is_refused_before_anything_is_read(path):
    write(path)
    with pytest.raises(ArtifactInvalid, match=r"digest is 'd+': expected 'e+'"):
        look_into(str(path), "launch", "e" * 64)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"version":"1"', b'"version":"2"', "version is '2': expected '1'"),
        (b"coresident-prefix", b"coresident-dearly", "format is 'coresident-dearly'"),
        (b'"dtype":"float32"', b'"dtype":"floaty2"', "dtype is 'floaty2'"),
        (b'"tokens":"20"', b'"tokens":"2x"', "tokens is '2x'"),
        (b'"aligned":"16"', b'"aligned":"08"', "header is"),
        (b'"layers":"2"', b'"layers":"9"', "header is"),
        (b'"aligned":"16"', b'"aligned":"61"', "tokens, aligned, chunk is"),
        (b'"identity"', b'"idontity"', "identity is None"),
        (b'{"__metadata__"', b'["__metadata__"', "header is 'JSONDecodeError'"),
        (b'"F32"', b'"I32"', "header is"),
    ],
)
def test_R67_a_head_that_is_not_what_is_written_is_refused_by_name(path, old, new, message):
    write(path)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    with pytest.raises(ArtifactInvalid, match=message):
        look_into(str(path), "launch", GEOMETRY.digest)


def test_R67_a_file_cut_at_many_lengths_is_refused(path):
    file = write(path)
    data = path.read_bytes()
    for length in (*range(24), *range(24, len(data), 41), len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ArtifactInvalid):
            read(file)
        with pytest.raises(ArtifactInvalid):
            look_into(str(path), "launch", GEOMETRY.digest)
    path.write_bytes(data + b"\0")
    with pytest.raises(ArtifactInvalid, match="size is"):
        read(file)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "prefix.safetensors"
    return write(path), path.read_bytes()


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_R67_any_flipped_bit_is_refused(stored, data):
    file, content = stored
    position = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    with open(file.path, "wb") as stream:
        stream.write(damaged)
    with pytest.raises(ArtifactInvalid):
        read(file)


@given(content=st.binary(max_size=200))
@settings(deadline=None, max_examples=100)
def test_R67_no_content_is_worse_than_invalid(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "anything.safetensors"
    for data in (content, len(content).to_bytes(8, "little") + content):
        path.write_bytes(data)
        with pytest.raises(ArtifactInvalid):
            look_into(str(path), "launch", GEOMETRY.digest)


def test_R67_a_head_that_nests_without_end_is_refused(path):
    with pytest.raises(ArtifactInvalid, match="header is"):
        decode_head(b"[" * 200_000, str(path))


def test_R67_a_file_cut_while_it_is_read_is_refused(path, monkeypatch):
    wide = attrs.evolve(GEOMETRY, head_dim=1024)
    large = [np.zeros((20, 1024), np.float32) for _ in range(8)]
    drain(write_prefix(entry(path), "reference", wide, large))
    monkeypatch.setattr(prefix_file, "SEGMENT_BYTES", large[0].nbytes)
    steps = read_prefix(entry(path), "reference", wide, large)
    next(steps)
    os.truncate(path, 0)
    with pytest.raises(ArtifactInvalid, match="it was cut while it was read"):
        drain(steps)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "unreadable"])
def test_R67_what_is_no_readable_file_is_refused(path, kind, monkeypatch):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        write(path)
        monkeypatch.setattr(prefix_file, "_head", failing(errno.EIO))
    with pytest.raises(ArtifactInvalid, match="file "):
        look_into(str(path), "launch", GEOMETRY.digest)


def failing(number: int):
    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("before", [None, b"what was there"])
def test_R67_a_disk_that_fails_leaves_what_was_there(path, monkeypatch, call, before):
    if before is not None:
        path.write_bytes(before)
    if call == "write":
        real = os.fdopen

        def full(*args):
            stream = real(*args)
            stream.close()

            class Full:
                __enter__ = lambda self: self  # noqa: E731
                __exit__ = lambda self, *error: None  # noqa: E731
                write = staticmethod(failing(errno.ENOSPC))

            return Full()

        monkeypatch.setattr(prefix_file.os, "fdopen", full)
    else:
        monkeypatch.setattr(prefix_file.os, call, failing(errno.ENOSPC))
    with pytest.raises(BackendFault, match=r"cannot be written: No space left on device; free space") as caught:
        write(path)
    assert caught.value.details["file"] == str(path)
    assert os.listdir(path.parent) == ([] if before is None else [path.name])
    if before is not None:
        assert path.read_bytes() == before


def test_R67_a_folder_that_is_not_there_is_the_callers_to_mend(tmp_path):
    with pytest.raises(InvalidRequest, match="No such file or directory; give a path in a folder that exists"):
        write(tmp_path / "nowhere" / "prefix")


def test_R67_a_store_given_up_at_any_segment_leaves_nothing(path, monkeypatch):
    monkeypatch.setattr(prefix_file, "SEGMENT_BYTES", 320)
    for stop in range(8):
        steps = write_prefix(entry(path), "reference", GEOMETRY, pieces())
        for _ in range(stop):
            next(steps)
        steps.close()
        assert os.listdir(path.parent) == []
    _, segments = drain(write_prefix(entry(path), "reference", GEOMETRY, pieces()))
    assert segments == 8


def test_the_file_is_brought_to_disk_before_it_has_its_name_and_the_folder_after(path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(prefix_file.os, "fsync", lambda number: (order.append("fsync"), fsync(number))[1])
    monkeypatch.setattr(prefix_file.os, "replace", lambda *paths: (order.append("replace"), replace(*paths))[1])
    write(path)
    assert order == ["fsync", "replace", "fsync"]


def test_the_checksum_covers_the_head_too(path):
    write(path)
    data = path.read_bytes()
    header = decode_head(data[8 : 8 + int.from_bytes(data[:8], "little")], str(path))
    assert header.token_hash == token_hash(token_bytes(TOKENS))
    assert header == attrs.evolve(PrefixHeader.of(entry(path), "reference", GEOMETRY), checksum=header.checksum)
    forged = attrs.evolve(header, identity="another")
    path.write_bytes(forged.encode() + data[len(header.encode()) :])
    assert look_into(str(path), "launch", GEOMETRY.digest).identity == "another"
    with pytest.raises(ArtifactInvalid, match="checksum is"):
        read(attrs.evolve(entry(path), identity="another"))
