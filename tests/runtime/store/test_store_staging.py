"""Staging: size and digest enforced while copying, nothing published that isn't whole, and going on after a cut."""

from __future__ import annotations

import errno
import io
import os
import stat
import tracemalloc
from pathlib import Path

import pytest
from coresident.actors.errors import InvalidRequest
from coresident.runtime.store.artifacts import Artifact, Partial, Staged
from coresident.runtime.store.digests import CHUNK
from coresident.runtime.store.faults import StoreFault

from support.faulty_layer import FaultyLayer
from support.stores import (
    DATA,
    DIGEST,
    EMPTY,
    Pieces,
    contents,
    digest_of,
    disk_error,
    open_store,
    refused,
)

SIZE = len(DATA)


class Endless:
    """A reader that never ends, and says how much it was asked for."""

    asked = 0
    largest = 0

    def read(self, size: int, /) -> bytes:
        """As many zeros as are wanted."""
        self.asked += size
        self.largest = max(self.largest, size)
        return bytes(size)


def test_an_artifact_is_staged_once_and_read_back(tmp_path: Path) -> None:
    layer = FaultyLayer(write_limit=100)
    artifacts = open_store(tmp_path, layer)
    seen: list[tuple[int, int]] = []
    staged = artifacts.stage(Pieces(), DIGEST, SIZE, lambda done, total: seen.append((done, total)))
    assert staged == Staged(DIGEST, SIZE, copied=SIZE, resumed=0, published=True)
    assert seen == [(300, SIZE), (600, SIZE), (900, SIZE), (SIZE, SIZE)]
    assert contents(tmp_path) == {f"blobs/{DIGEST}": DATA}
    assert stat.S_IMODE((tmp_path / "blobs" / DIGEST).stat().st_mode) == 0o444
    assert artifacts.has(DIGEST)
    assert artifacts.list() == (Artifact(DIGEST, SIZE),)
    assert artifacts.verify(DIGEST, SIZE) == SIZE
    fd = artifacts.open(DIGEST)
    assert os.read(fd, SIZE + 1) == DATA
    layer.close(fd)
    again = Pieces()
    assert artifacts.stage(again, DIGEST, SIZE) == Staged(DIGEST, SIZE)
    assert again.given == 0
    assert artifacts.remove(DIGEST)
    assert not artifacts.remove(DIGEST)
    assert (artifacts.has(DIGEST), artifacts.list(), artifacts.partials()) == (False, (), ())
    artifacts.root.close()
    assert layer.paths == {}


def test_FIELD_81_an_empty_file_is_an_artifact(tmp_path: Path) -> None:
    artifacts = open_store(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    assert artifacts.stage_file(tmp_path / "empty") == Staged(EMPTY, 0, published=True)
    assert artifacts.verify(EMPTY, 0) == 0
    with refused("long"):
        artifacts.stage(io.BytesIO(b"x"), digest_of(b"another"), 0)
    with refused("mismatch", actual=EMPTY):
        artifacts.stage(io.BytesIO(), DIGEST, 0)


@pytest.mark.parametrize("bit", [0, 8 * (SIZE // 2) + 3, 8 * SIZE - 1])
def test_FIELD_81_one_flipped_bit_is_a_mismatch(tmp_path: Path, bit: int) -> None:
    artifacts = open_store(tmp_path)
    flipped = bytearray(DATA)
    flipped[bit // 8] ^= 1 << bit % 8
    with refused("mismatch", expected=DIGEST, actual=digest_of(flipped)):
        artifacts.stage(Pieces(bytes(flipped)), DIGEST, SIZE)
    assert contents(tmp_path) == {}
    artifacts.stage(Pieces(), DIGEST, SIZE)
    blob = tmp_path / "blobs" / DIGEST
    blob.chmod(0o600)
    blob.write_bytes(flipped)
    with refused("mismatch", expected=DIGEST, actual=digest_of(flipped)):
        artifacts.verify(DIGEST)


def test_R33_a_mismatch_publishes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    layer = FaultyLayer()
    artifacts = open_store(tmp_path, layer)
    with refused("mismatch"):
        artifacts.stage(Pieces(DATA[::-1]), DIGEST, SIZE)
    assert contents(tmp_path) == {}
    assert (artifacts.list(), artifacts.partials()) == ((), ())
    assert "replace" not in layer.operations


def test_R32_an_endless_reader_is_stopped_at_the_declared_size_with_bounded_memory(tmp_path: Path) -> None:
    artifacts, reader = open_store(tmp_path), Endless()
    size = 12 * CHUNK + 17
    most: list[int] = []
    tracemalloc.start()
    with refused("long", declared=size):
        artifacts.stage(reader, DIGEST, size, lambda done, _: most.append(done))
    assert tracemalloc.get_traced_memory()[1] < 3 * CHUNK
    tracemalloc.stop()
    assert reader.asked <= size + 1
    assert reader.largest <= CHUNK
    assert max(most) <= size
    assert contents(tmp_path) == {}


def test_R32_a_reader_that_gives_more_than_it_was_asked_for_is_stopped_too(tmp_path: Path) -> None:
    class Generous(Pieces):
        def read(self, size: int, /) -> bytes:
            return DATA + DATA

    layer = FaultyLayer()
    with refused("long", declared=SIZE):
        open_store(tmp_path, layer).stage(Generous(), DIGEST, SIZE)
    assert contents(tmp_path) == {}
    assert "write" not in layer.operations


def test_R32_a_short_reader_publishes_nothing_and_can_be_gone_on_from(tmp_path: Path) -> None:
    artifacts = open_store(tmp_path)
    with refused("short", declared=SIZE, actual=700):
        artifacts.stage(Pieces(DATA[:700]), DIGEST, SIZE)
    assert artifacts.list() == ()
    assert artifacts.partials() == (Partial(DIGEST, 700, live=False),)
    reader = Pieces()
    assert artifacts.stage(reader, DIGEST, SIZE) == Staged(DIGEST, SIZE, SIZE - 700, 700, published=True)
    assert reader.given == SIZE - 700
    assert contents(tmp_path) == {f"blobs/{DIGEST}": DATA}


def test_a_staging_that_ends_before_its_first_byte_leaves_no_part(tmp_path: Path) -> None:
    artifacts = open_store(tmp_path)
    with refused("short", actual=0):
        artifacts.stage(Pieces(b""), DIGEST, SIZE)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("size", [-1, 1.5, None, "7"])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: object) -> None:
    with pytest.raises(InvalidRequest, match="no number of bytes"):
        open_store(tmp_path).stage(Pieces(), DIGEST, size)


@pytest.mark.parametrize(
    "damage", [b"", DATA[:-1], DATA + b"x", b"x" + DATA[1:]], ids=["empty", "short", "long", "bit"]
)
def test_R27_an_artifact_that_is_there_is_verified_and_replaced_when_it_is_damaged(
    tmp_path: Path, damage: bytes
) -> None:
    artifacts = open_store(tmp_path)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / DIGEST).write_bytes(damage)
    assert artifacts.has(DIGEST)
    assert artifacts.stage(Pieces(), DIGEST, SIZE).published
    assert contents(tmp_path) == {f"blobs/{DIGEST}": DATA}


def test_partials_can_be_removed_unless_somebody_is_at_them(tmp_path: Path) -> None:
    artifacts = open_store(tmp_path)
    found: list[object] = []

    def look(done: int, _: int) -> None:
        found.append((artifacts.partials(), artifacts.remove_partial(DIGEST)))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        artifacts.stage(Pieces(), DIGEST, SIZE, look)
    assert found == [((Partial(DIGEST, 300, live=True),), False)]
    assert artifacts.partials() == (Partial(DIGEST, 300, live=False),)
    assert artifacts.remove_partial(DIGEST)
    assert not artifacts.remove_partial(DIGEST)
    (tmp_path / "staging" / "notes.part").write_bytes(b"somebody's")
    assert artifacts.partials() == ()


def test_a_file_is_staged_by_its_path_with_or_without_its_digest(tmp_path: Path) -> None:
    source, link = tmp_path / "model.gguf", tmp_path / "link.gguf"
    source.write_bytes(DATA)
    link.symlink_to(source)
    artifacts = open_store(tmp_path / "store")
    assert artifacts.stage_file(link) == Staged(DIGEST, SIZE, SIZE, 0, published=True)
    assert artifacts.stage_file(str(source), DIGEST, SIZE) == Staged(DIGEST, SIZE)
    with refused("mismatch"):
        artifacts.stage_file(source, digest_of(b"else"))


def test_FIELD_80_errors_name_the_true_fault_of_a_source(tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(DATA)
    layer = FaultyLayer()
    artifacts = open_store(tmp_path / "store", layer)
    with refused("missing", file=str(tmp_path / "other")):
        artifacts.stage_file(tmp_path / "other")
    with refused("short", file=str(source), declared=SIZE + 1, actual=SIZE):
        artifacts.stage_file(source, DIGEST, SIZE + 1)
    with refused("long", file=str(source), declared=SIZE - 1, actual=SIZE):
        artifacts.stage_file(source, DIGEST, SIZE - 1)
    layer.fail_at, layer.error = len(layer.calls), disk_error(errno.EACCES)
    with refused("unreadable", file=str(source)):
        artifacts.stage_file(source)
    assert contents(tmp_path / "store") == {}


def test_FIELD_80_errors_name_the_true_fault_of_an_artifact(tmp_path: Path) -> None:
    layer = FaultyLayer()
    artifacts = open_store(tmp_path, layer)
    path = str(tmp_path / "blobs" / DIGEST)
    for use in (artifacts.verify, artifacts.open):
        with refused("missing", file=path):
            use(DIGEST)
    artifacts.stage(Pieces(), DIGEST, SIZE)
    with refused("missing"):
        artifacts.verify(EMPTY)
    with refused("short", file=path, declared=SIZE + 1, actual=SIZE):
        artifacts.verify(DIGEST, SIZE + 1)
    with refused("long", file=path, declared=SIZE - 1, actual=SIZE):
        artifacts.verify(DIGEST, SIZE - 1)
    start = len(layer.calls)
    artifacts.verify(DIGEST)
    where = {name: start + layer.operations[start:].index(name) for name in ("read", "open")}
    for number in (errno.EIO, errno.EACCES):
        for offset in (where["read"], where["open"]):
            layer.fail_at, layer.error = len(layer.calls) + offset - start, disk_error(number)
            with refused("unreadable", file=path):
                artifacts.verify(DIGEST)
    layer.fail_at, layer.error = len(layer.calls), disk_error(errno.EMFILE)
    with pytest.raises(StoreFault, match="ulimit"):
        artifacts.verify(DIGEST)
    assert artifacts.verify(DIGEST, SIZE) == SIZE
