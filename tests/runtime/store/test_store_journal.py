"""The activation journal: it only grows, the newest record wins, and it is on the medium before anybody is told."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.faults import StoreBusy, StoreFault
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.journal import LOCK, NAME, Journal
from coresident.runtime.store.layer import OS_LAYER, Layer
from coresident.runtime.store.locks import FileLock
from coresident.runtime.store.records import MAX_JOURNAL, Contents, read_records

from support.faulty_layer import Crash, FaultyLayer
from support.store_processes import append_records, in_step
from support.stores import disk_error

FIXTURE = Path(__file__).parents[2] / "fixtures" / "store_journal.jsonl"
OLD, NEW, OTHER = "ab" * 32, "cd" * 32, "ef" * 32


def journal_at(path: Path, layer: Layer = OS_LAYER) -> Journal:
    return Journal(Folder.at(path, layer, create=True))


def test_R81_records_have_golden_bytes(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    journal.append("org/chat-7b", "any", OLD)
    journal.append("org/chat-7b", "vulkan:0", NEW)
    journal.append("org/chat-7b", "any", None)
    assert (tmp_path / NAME).read_bytes() == FIXTURE.read_bytes()
    assert [record.sequence for record in read_records(FIXTURE.read_bytes(), "fixture").records] == [1, 2, 3]


def test_R37_the_newest_record_of_a_model_and_device_wins(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    for model, device, manifest in (("a", "any", OLD), ("a", "gpu", OTHER), ("b", "any", NEW), ("a", "any", NEW)):
        journal.append(model, device, manifest)
    newest = {key: record.manifest for key, record in journal.read().selected().items()}
    assert newest == {("a", "any"): NEW, ("a", "gpu"): OTHER, ("b", "any"): NEW}


def test_R37_the_journal_only_grows(tmp_path: Path) -> None:
    journal, before = journal_at(tmp_path), b""
    for manifest in (OLD, NEW, None, OLD):
        journal.append("a", "any", manifest)
        now = (tmp_path / NAME).read_bytes()
        assert now.startswith(before)
        assert len(now) > len(before)
        before = now


def test_R42_an_empty_journal_selects_nothing_and_reading_makes_no_file(tmp_path: Path) -> None:
    assert journal_at(tmp_path).read() == Contents()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / NAME).touch()
    assert journal_at(tmp_path).read().selected() == {}


def test_R40_record_and_name_are_synced_before_an_append_returns(tmp_path: Path) -> None:
    layer = FaultyLayer()
    journal = journal_at(tmp_path, layer)
    del layer.calls[:]
    journal.append("a", "any", OLD)
    path, folder = f"{tmp_path.name}/{NAME}", str(tmp_path)
    of_the_journal = [call for call in layer.calls if call[0] in ("write", "fsync")]
    assert of_the_journal == [("write", path), ("fsync", path), ("fsync", folder)]
    locked = layer.operations.index("lock")
    assert locked < layer.operations.index("write")
    assert ("close", f"{tmp_path.name}/{LOCK}") not in layer.calls[: layer.operations.index("fsync") + 2]


def test_R40_what_is_written_in_pieces_is_written_whole(tmp_path: Path) -> None:
    layer = FaultyLayer(write_limit=7)
    journal_at(tmp_path, layer).append("a", "any", OLD)
    assert layer.operations.count("write") > 20
    assert journal_at(tmp_path).read().selected()["a", "any"].manifest == OLD


@pytest.mark.parametrize("kind", ["once", "late", "onwards", "crash"])
def test_R38_a_fault_at_any_call_leaves_the_old_or_the_new_record(tmp_path: Path, kind: str) -> None:
    total = calls_of_an_append(tmp_path / "counted")
    for at in range(total):
        root = tmp_path / str(at)
        journal_at(root).append("a", "any", OLD)
        error = Crash() if kind == "crash" else disk_error(errno.EIO)
        layer = FaultyLayer(
            at, error, late=kind == "late", onwards=kind in ("onwards", "crash"), write_limit=100 if at % 2 else None
        )
        with pytest.raises((StoreFault, Crash)):
            journal_at(root, layer).append("a", "any", NEW)
        layer.bury()
        read = journal_at(root).read()
        assert read.selected()["a", "any"].manifest in (OLD, NEW)
        journal_at(root).append("a", "any", OTHER)
        read = journal_at(root).read()
        assert (read.selected()["a", "any"].manifest, read.torn) == (OTHER, 0)


def calls_of_an_append(root: Path) -> int:
    journal_at(root).append("a", "any", OLD)
    layer = FaultyLayer()
    journal_at(root, layer).append("a", "any", NEW)
    return len(layer.calls)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("operation", ["write", "fsync"])
def test_an_append_that_fails_once_is_taken_back(tmp_path: Path, operation: str, error: int) -> None:
    journal_at(tmp_path).append("a", "any", OLD)
    before = (tmp_path / NAME).read_bytes()
    layer = FaultyLayer()
    journal = journal_at(tmp_path, layer)
    layer.before[operation] = lambda _: fail_next(layer, error)
    with pytest.raises(StoreFault) as raised:
        journal.append("a", "any", NEW)
    assert raised.value.details["errno"] == error
    assert (tmp_path / NAME).read_bytes() == before


def fail_next(layer: FaultyLayer, error: int) -> None:
    layer.fail_at, layer.error, layer.late = len(layer.calls), disk_error(error), True


def test_a_reader_waits_for_a_writer_and_never_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = journal_at(tmp_path)
    journal.append("a", "any", OLD)
    monkeypatch.setattr("coresident.runtime.store.journal.WAIT_S", 0.0)
    with FileLock.take(journal.folder, LOCK), pytest.raises(StoreBusy, match="locked by another process"):
        journal.read()
    with FileLock.take(journal.folder, LOCK, shared=True):
        assert len(journal.read().records) == 1
        with pytest.raises(StoreBusy):
            journal.append("a", "any", NEW)


def test_two_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    assert in_step(append_records, (tmp_path, "a"), (tmp_path, "b")) == ["done", "done"]
    records = journal.read().records
    assert [record.sequence for record in records] == list(range(1, 41))
    for model in ("a", "b"):
        mine = [record.manifest for record in records if record.model == model]
        assert mine == [f"{number:064x}" for number in range(20)]


def test_a_read_only_journal_can_be_read(tmp_path: Path) -> None:
    journal_at(tmp_path).append("a", "any", OLD)
    layer = FaultyLayer()
    assert journal_at(tmp_path, layer).read().selected()["a", "any"].manifest == OLD
    assert not {"write", "truncate", "fsync", "mkdir", "unlink", "replace"} & set(layer.operations)
    (tmp_path / LOCK).unlink()
    assert len(journal_at(tmp_path).read().records) == 1
    assert not (tmp_path / LOCK).exists()


def test_R35_a_journal_or_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(FIXTURE.read_bytes())
    uses: tuple[Callable[[Journal], object], ...] = (Journal.read, lambda journal: journal.append("a", "any", OLD))
    for name in (NAME, LOCK):
        root = tmp_path / f"store of {name}"
        root.mkdir()
        (root / name).symlink_to(outside)
        for use in uses:
            with pytest.raises(ArtifactInvalid, match="symbolic link"):
                use(journal_at(root))
    assert outside.read_bytes() == FIXTURE.read_bytes()


def test_a_journal_is_never_longer_than_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = journal_at(tmp_path)
    monkeypatch.setattr("coresident.runtime.store.journal.MAX_JOURNAL", 700)
    journal.append("a", "any", OLD)
    journal.append("a", "any", NEW)
    with pytest.raises(StoreFault, match="700 bytes"):
        journal.append("a", "any", OLD)
    assert journal.read().selected()["a", "any"].manifest == NEW
    assert (tmp_path / NAME).stat().st_size <= 700
    os.truncate(tmp_path / NAME, MAX_JOURNAL + 1)
    with pytest.raises(ArtifactInvalid, match="at most"):
        read_records((tmp_path / NAME).read_bytes(), NAME)
