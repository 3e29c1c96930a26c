"""Several that stage the same artifact at once: one publishes, all succeed, and the bytes are there once."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from coresident.runtime.store.artifacts import Artifacts, Staged
from coresident.runtime.store.faults import StoreBusy, StoreFault
from coresident.runtime.store.folders import Folder

from support.faulty_layer import FaultyLayer
from support.store_processes import in_step, stage_all
from support.stores import DATA, DIGEST, Pieces, contents, digest_of, disk_error, open_store, refused

SIZE = len(DATA)
WHOLE = {f"blobs/{DIGEST}": DATA}


def test_R34_two_processes_race_and_one_of_them_publishes(tmp_path: Path) -> None:
    sources, store = tmp_path / "sources", tmp_path / "store"
    sources.mkdir()
    blobs = [os.urandom(200_000) for _ in range(12)]
    for data in blobs:
        (sources / digest_of(data)).write_bytes(data)
    work = (store, sources, [digest_of(data) for data in blobs])
    outputs = in_step(stage_all, work, work)
    assert [sorted(pair) for pair in zip(*outputs, strict=True)] == [[False, True]] * len(blobs)
    assert contents(store) == {f"blobs/{digest_of(data)}": data for data in blobs}


class Held(Pieces):
    """A reader that stops in the middle until it is let go on, and says when it has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped, self.go_on = threading.Event(), threading.Event()

    def read(self, size: int, /) -> bytes:
        """The next piece, after the wait."""
        if self.position >= 600:
            self.stopped.set()
            assert self.go_on.wait(60)
        return super().read(size)


def test_one_that_comes_second_waits_and_copies_nothing(tmp_path: Path) -> None:
    layer, first, second = FaultyLayer(), Held(), Pieces()
    with ThreadPoolExecutor() as pool:
        staging = pool.submit(open_store(tmp_path).stage, first, DIGEST, SIZE)
        assert first.stopped.wait(60)
        layer.before["lock"] = lambda _: first.go_on.set()
        assert open_store(tmp_path, layer).stage(second, DIGEST, SIZE) == Staged(DIGEST, SIZE)
        assert staging.result() == Staged(DIGEST, SIZE, SIZE, published=True)
    assert second.given == 0
    assert contents(tmp_path) == WHOLE


def test_one_that_comes_second_goes_on_where_the_first_one_failed(tmp_path: Path) -> None:
    class Failing(Held):
        def read(self, size: int, /) -> bytes:
            if self.go_on.is_set():
                raise ConnectionResetError
            return super().read(size)

    layer, first = FaultyLayer(), Failing()
    with ThreadPoolExecutor() as pool:
        staging = pool.submit(open_store(tmp_path).stage, first, DIGEST, SIZE)
        assert first.stopped.wait(60)
        layer.before["lock"] = lambda _: first.go_on.set()
        second = open_store(tmp_path, layer).stage(Pieces(), DIGEST, SIZE)
        assert isinstance(staging.exception(), ConnectionResetError) or staging.result()
    assert second.resumed >= 600
    assert contents(tmp_path) == WHOLE


def test_one_that_comes_second_does_well_when_the_first_one_had_the_wrong_bytes(tmp_path: Path) -> None:
    layer, first = FaultyLayer(), Held()
    first.data = DATA[::-1]
    with ThreadPoolExecutor() as pool:
        staging = pool.submit(open_store(tmp_path).stage, first, DIGEST, SIZE)
        assert first.stopped.wait(60)
        layer.before["lock"] = lambda _: first.go_on.set()
        assert open_store(tmp_path, layer).stage(Pieces(), DIGEST, SIZE).published
        with refused("mismatch"):
            staging.result()
    assert contents(tmp_path) == WHOLE


def test_waiting_for_another_staging_ends_with_its_timeout(tmp_path: Path) -> None:
    artifacts, first = open_store(tmp_path), Held()
    with ThreadPoolExecutor() as pool:
        staging = pool.submit(artifacts.stage, first, DIGEST, SIZE)
        assert first.stopped.wait(60)
        with pytest.raises(StoreBusy, match="locked by another process"):
            artifacts.stage(Pieces(), DIGEST, SIZE, timeout_s=0)
        first.go_on.set()
        assert staging.result().published
    assert contents(tmp_path) == WHOLE


def test_a_failure_after_its_part_is_gone_never_removes_another_ones_part(tmp_path: Path) -> None:
    """The part is renamed away when the folder's sync fails; a part of that name is then somebody else's."""
    layer = FaultyLayer()
    empty = digest_of(b"")
    part = tmp_path / "staging" / f"{empty}.part"

    def somebody_begins(_: str) -> None:
        part.write_bytes(b"")
        layer.fail_at, layer.error = len(layer.calls), disk_error(5)

    layer.before["chmod"] = somebody_begins
    with pytest.raises(StoreFault):
        open_store(tmp_path, layer).stage(Pieces(b""), empty, 0)
    assert part.exists()


def test_many_threads_stage_many_artifacts(tmp_path: Path) -> None:
    artifacts = Artifacts(Folder.at(tmp_path, create=True))
    blobs = [DATA + bytes([index]) for index in range(8)]
    order = [blobs[index % 8 if index % 3 else -index % 8] for index in range(64)]
    with ThreadPoolExecutor(8) as pool:
        staged = list(pool.map(lambda data: artifacts.stage(Pieces(data), digest_of(data), len(data)), order))
    assert sum(one.published for one in staged) == len(blobs)
    assert contents(tmp_path) == {f"blobs/{digest_of(data)}": data for data in blobs}
