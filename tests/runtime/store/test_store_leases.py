"""Leases: counted across processes, ended by the system when their process ends, and in nobody's way after that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from coresident.runtime.store.artifacts import Artifacts
from coresident.runtime.store.collect import Keep, collect
from coresident.runtime.store.faults import StoreBusy, StoreFault
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.leases import Leases

from support.faulty_layer import FaultyLayer
from support.store_processes import beside, hold_lease, hold_lease_and_fork
from support.stores import DATA, DIGEST, DISK_ERRORS, EMPTY, Pieces, contents, disk_error, open_store


def leases_in(path: Path) -> Leases:
    """The leases of a store that is made."""
    return Leases(Folder.at(path, create=True))


def nothing_kept(leased: frozenset[str]) -> Keep:
    """Only what is leased stays; each manifest here names the artifact of its own digest."""
    return Keep(leased, leased)


def test_R2_leases_are_counted_until_each_is_released(tmp_path: Path) -> None:
    leases = leases_in(tmp_path)
    assert (leases.count(DIGEST), leases.leased()) == (0, frozenset())
    first = leases.take(DIGEST)
    with leases.take(DIGEST) as second:
        assert (first.name, second.name) == (DIGEST, DIGEST)
        assert leases.count(DIGEST) == 2
        with leases.take(EMPTY):
            assert leases.leased() == {DIGEST, EMPTY}
    assert (leases.count(DIGEST), first.held, second.held) == (1, True, False)
    first.release()
    first.release()
    assert (leases.count(DIGEST), leases.leased()) == (0, frozenset())
    assert contents(tmp_path) == {"leases/gate": b""}


def test_R2_a_lease_of_another_process_blocks_deletion_until_that_process_has_given_it_back(tmp_path: Path) -> None:
    artifacts = open_store(tmp_path)
    artifacts.stage(Pieces(), DIGEST, len(DATA))
    leases = Leases(artifacts.root)
    with beside(hold_lease, tmp_path, DIGEST) as (_, pipe):
        assert pipe.recv() == "taken"
        assert leases.count(DIGEST) == 1
        assert collect(artifacts.root, nothing_kept).artifacts == ()
        assert leases.reap() == 0
        pipe.send("give it back")
        assert pipe.recv() == "given back"
        assert leases.count(DIGEST) == 0
        assert collect(artifacts.root, nothing_kept).artifacts == (DIGEST,)


def test_R2_the_count_reaches_zero_when_a_reader_that_was_killed_is_reaped(tmp_path: Path) -> None:
    artifacts = open_store(tmp_path)
    artifacts.stage(Pieces(), DIGEST, len(DATA))
    leases = Leases(artifacts.root)
    with beside(hold_lease, tmp_path, DIGEST) as (child, pipe):
        assert pipe.recv() == "taken"
        assert leases.count(DIGEST) == 1
        child.kill()
        child.join()
        assert leases.count(DIGEST) == 0
        (left,) = (tmp_path / "leases" / DIGEST).iterdir()
        assert left.name.startswith(f"{child.pid}-")
    assert leases.reap() == 1
    assert contents(tmp_path) == {f"blobs/{DIGEST}": DATA, "leases/gate": b""}
    assert not (tmp_path / "leases" / DIGEST).exists()
    assert leases.reap() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_neither_releases_its_parents_lease_nor_keeps_it_alive(tmp_path: Path) -> None:
    leases = leases_in(tmp_path)
    with beside(hold_lease_and_fork, tmp_path, DIGEST) as (parent, pipe):
        assert pipe.recv() == "released, held: False"
        assert leases.count(DIGEST) == 1
        parent.kill()
        parent.join()
        assert leases.count(DIGEST) == 0
        assert leases.reap() == 1


def test_a_process_id_that_is_used_again_means_nothing(tmp_path: Path) -> None:
    leases = leases_in(tmp_path)
    with leases.take(DIGEST) as mine:
        stale = tmp_path / "leases" / DIGEST / f"{os.getpid()}-{'0' * 16}"
        stale.write_bytes(b"")
        assert leases.count(DIGEST) == 1
        assert leases.reap() == 1
        assert not stale.exists()
        assert (tmp_path / "leases" / DIGEST / mine.entry).exists()


def test_files_that_are_no_leases_are_left_alone(tmp_path: Path) -> None:
    leases = leases_in(tmp_path)
    (tmp_path / "leases" / DIGEST).mkdir(parents=True)
    (tmp_path / "leases" / "notes").mkdir()
    (tmp_path / "leases" / DIGEST / "notes").write_bytes(b"mine")
    assert (leases.count(DIGEST), leases.leased(), leases.reap()) == (0, frozenset(), 0)
    assert contents(tmp_path) == {"leases/gate": b"", f"leases/{DIGEST}/notes": b"mine"}


def test_a_lease_waits_for_a_collection_and_says_so_when_that_takes_too_long(tmp_path: Path) -> None:
    leases = leases_in(tmp_path)
    with leases.gate(shared=False):
        with pytest.raises(StoreBusy, match="gate is locked by another process"):
            leases.take(DIGEST, timeout_s=0)
        with pytest.raises(StoreBusy):
            leases.reap(timeout_s=0)
        with pytest.raises(StoreBusy):
            collect(leases.root, nothing_kept, timeout_s=0)
    with leases.gate(shared=True), leases.take(DIGEST, timeout_s=0):
        assert leases.count(DIGEST) == 1


def test_releasing_where_the_store_is_gone_is_no_error(tmp_path: Path) -> None:
    lease = leases_in(tmp_path / "store").take(DIGEST)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    for entry in sorted((tmp_path / "elsewhere").rglob("*"), reverse=True):
        entry.unlink() if entry.is_file() else entry.rmdir()
    lease.release()
    assert not lease.held


@pytest.mark.parametrize("number", DISK_ERRORS)
def test_a_lease_whose_taking_or_release_fails_at_any_call_is_not_held(tmp_path: Path, number: int) -> None:
    counted = FaultyLayer()
    (tmp_path / "counted").mkdir()
    with Folder.at(tmp_path / "counted", counted) as root, Leases(root).take(DIGEST):
        pass
    for index in range(len(counted.calls)):
        store, layer = tmp_path / str(index), FaultyLayer(index, disk_error(number))
        store.mkdir()
        with pytest.raises(StoreFault), Folder.at(store, layer) as root, Leases(root).take(DIGEST):
            pass
        assert layer.paths == {}
        leases = leases_in(store)
        assert leases.count(DIGEST) == 0
        leases.reap()
        assert set(contents(store)) <= {"leases/gate"}


def test_an_error_in_a_leases_block_is_told_before_that_of_its_release(tmp_path: Path) -> None:
    layer = FaultyLayer()
    leases = Leases(Folder.at(tmp_path, layer, create=True))

    def use() -> None:
        with leases.take(DIGEST):
            layer.fail_at, layer.error, layer.onwards = len(layer.calls), disk_error(5), True
            raise LookupError("the caller's own")

    with pytest.raises(LookupError) as caught:
        use()
    assert "can't" in caught.value.__notes__[0]
    layer.bury()
    assert Artifacts(Folder.at(tmp_path)).list() == ()
