"""Staging that was cut short: it goes on behind what is there, and the digest still covers every byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from coresident.runtime.store.artifacts import Artifacts, Partial, Staged
from coresident.runtime.store.folders import Folder

from support.store_processes import beside, stage_slowly
from support.stores import DATA, DIGEST, Pieces, contents, digest_of, leave_part, open_store, refused

SIZE = len(DATA)


@pytest.mark.parametrize("cut", [1, 299, 300, SIZE - 1, SIZE])
def test_FIELD_82_staging_goes_on_behind_what_is_there_and_hashes_all_of_it(tmp_path: Path, cut: int) -> None:
    leave_part(tmp_path, DATA[:cut])
    reader = Pieces()
    seen: list[int] = []
    staged = open_store(tmp_path).stage(reader, DIGEST, SIZE, lambda done, _: seen.append(done))
    assert staged == Staged(DIGEST, SIZE, SIZE - cut, cut, published=True)
    assert reader.given == SIZE - cut
    assert (seen[0], seen[-1]) == (cut, SIZE)
    assert contents(tmp_path) == {f"blobs/{DIGEST}": DATA}


def test_FIELD_82_a_reader_that_cannot_seek_is_read_from_its_beginning(tmp_path: Path) -> None:
    leave_part(tmp_path, DATA[:500])
    reader = Pieces(seeks=False)
    assert open_store(tmp_path).stage(reader, DIGEST, SIZE) == Staged(DIGEST, SIZE, SIZE, 0, published=True)
    assert contents(tmp_path) == {f"blobs/{DIGEST}": DATA}


def test_FIELD_82_a_part_that_was_tampered_with_ends_as_a_mismatch_and_is_removed(tmp_path: Path) -> None:
    leave_part(tmp_path, b"x" + DATA[1:500])
    artifacts = open_store(tmp_path)
    with refused("mismatch", resumed=500) as caught:
        artifacts.stage(Pieces(), DIGEST, SIZE)
    assert "500 of them from an earlier attempt" in str(caught.value)
    assert contents(tmp_path) == {}
    assert artifacts.stage(Pieces(), DIGEST, SIZE).resumed == 0


def test_a_part_longer_than_declared_is_begun_again(tmp_path: Path) -> None:
    leave_part(tmp_path, DATA + b"more")
    assert open_store(tmp_path).stage(Pieces(), DIGEST, SIZE) == Staged(DIGEST, SIZE, SIZE, 0, published=True)


def test_a_part_that_is_another_file_too_is_never_written_to(tmp_path: Path) -> None:
    store, outside = tmp_path / "store", tmp_path / "precious"
    outside.write_bytes(b"precious")
    (store / "staging").mkdir(parents=True)
    os.link(outside, store / "staging" / f"{DIGEST}.part")
    assert open_store(store).stage(Pieces(), DIGEST, SIZE).published
    assert outside.read_bytes() == b"precious"
    assert contents(store) == {f"blobs/{DIGEST}": DATA}


def test_what_the_reader_or_the_progress_raises_comes_through_and_the_part_stays(tmp_path: Path) -> None:
    class Broken(Pieces):
        def read(self, size: int, /) -> bytes:
            if self.position >= 600:
                raise ConnectionResetError("the line is dead")
            return super().read(size)

    def stop(done: int, _: int) -> None:
        if done >= 900:
            raise KeyboardInterrupt

    artifacts = open_store(tmp_path)
    with pytest.raises(ConnectionResetError, match="the line is dead"):
        artifacts.stage(Broken(), DIGEST, SIZE)
    with pytest.raises(KeyboardInterrupt):
        artifacts.stage(Pieces(), DIGEST, SIZE, stop)
    assert artifacts.partials() == (Partial(DIGEST, 900, live=False),)
    assert artifacts.stage(Pieces(), DIGEST, SIZE).resumed == 900


def test_FIELD_82_a_staging_killed_at_55_percent_goes_on_from_there(tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    digest, store = digest_of(data), tmp_path / "store"
    with beside(stage_slowly, store, data, digest) as (child, pipe):
        assert pipe.recv() == "55 %"
        artifacts = Artifacts(Folder.at(store))
        assert artifacts.partials() == (Partial(digest, 550_000, live=True),)
        child.kill()
        child.join()
    assert artifacts.partials() == (Partial(digest, 550_000, live=False),)
    assert artifacts.list() == ()
    reader = Pieces(data, 100_000)
    assert artifacts.stage(reader, digest, len(data)) == Staged(digest, 1_000_000, 450_000, 550_000, published=True)
    assert reader.given == 450_000
    assert contents(store) == {f"blobs/{digest}": data}
