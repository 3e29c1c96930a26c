"""Every call of a staging made to fail, in the code's own order: whole or not there, and well the next time."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.artifacts import Artifacts, Staged
from coresident.runtime.store.faults import StoreFault
from coresident.runtime.store.folders import Folder

from support.faulty_layer import Crash, FaultyLayer
from support.stores import DATA, DIGEST, DISK_ERRORS, Pieces, contents, disk_error, leave_part, open_store

SIZE = len(DATA)
PART = f"staging/{DIGEST}.part"
BLOB = f"blobs/{DIGEST}"


def nothing(path: Path) -> None:
    """An empty store."""


def cut_short(path: Path) -> None:
    """A store with a part from an earlier attempt."""
    leave_part(path, DATA[:500])


def damaged(path: Path) -> None:
    """A store whose artifact has lost its end."""
    (path / "blobs").mkdir()
    (path / BLOB).write_bytes(DATA[:-1])


def there(path: Path) -> None:
    """A store that has the artifact already."""
    open_store(path, FaultyLayer()).stage(Pieces(), DIGEST, SIZE)


BEFORE = (nothing, cut_short, damaged, there)


def stage(path: Path, layer: FaultyLayer) -> Staged:
    """Stage the source into the store at ``path``, all of it through ``layer``."""
    with Folder.at(path, layer, create=True) as root:
        return Artifacts(root).stage_file(path.with_name("source"))


def failure(path: Path, layer: FaultyLayer) -> StoreFault | ArtifactInvalid | None:
    """What :func:`stage` fails with, if anything."""
    try:
        stage(path, layer)
    except (StoreFault, ArtifactInvalid) as error:
        return error
    return None


def calls_of(tmp_path: Path, before: Callable[[Path], None]) -> FaultyLayer:
    """A layer that has seen the whole of a staging that ends well."""
    (tmp_path / "source").write_bytes(DATA)
    path = tmp_path / "counted"
    path.mkdir()
    before(path)
    layer = FaultyLayer(write_limit=400)
    stage(path, layer)
    assert layer.paths == {}
    return layer


def assert_whole_or_absent(path: Path, before: Callable[[Path], None]) -> None:
    """Nothing is published that isn't whole; a damaged artifact may still be what it was."""
    left = contents(path)
    allowed = (None, DATA, DATA[:-1]) if before is damaged else (None, DATA)
    assert left.pop(BLOB, None) in allowed
    assert DATA.startswith(left.pop(PART, b""))
    assert left == {}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("late", [False, True], ids=["undone", "done"])
def test_R34_any_call_may_fail_and_staging_again_ends_well(
    tmp_path: Path, before: Callable[[Path], None], late: bool
) -> None:
    calls = calls_of(tmp_path, before).calls
    survived = []
    for index, call in enumerate(calls):
        number = DISK_ERRORS[(index + late) % len(DISK_ERRORS)]
        path = tmp_path / str(index)
        path.mkdir()
        before(path)
        layer = FaultyLayer(index, disk_error(number), late=late, write_limit=400)
        error = failure(path, layer)
        if error is None:
            survived.append(call)
        else:
            causes = (error.__cause__, error.__cause__ and error.__cause__.__cause__)
            assert any(isinstance(cause, OSError) and cause.errno == number for cause in causes), call
        assert layer.paths == {}, call
        assert_whole_or_absent(path, before)
        assert stage(path, FaultyLayer()).digest == DIGEST
        assert contents(path) == {BLOB: DATA}, call
    # An artifact that is there and can't be read is staged anew; no other failure is passed over.
    assert {name for name, _ in survived} <= {"open", "fstat", "read", "close"}
    assert {Path(path).name for _, path in survived} <= {"blobs", DIGEST}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("late", [False, True], ids=["undone", "done"])
@pytest.mark.parametrize("error", [disk_error(errno.EIO), Crash()], ids=["disk gone", "killed"])
def test_R34_the_disk_or_the_process_may_be_gone_from_any_call_on(
    tmp_path: Path, before: Callable[[Path], None], error: BaseException, late: bool
) -> None:
    for index in range(len(calls_of(tmp_path, before).calls)):
        path = tmp_path / str(index)
        path.mkdir()
        before(path)
        layer = FaultyLayer(index, error, late=late, onwards=True, write_limit=400)
        with pytest.raises((StoreFault, ArtifactInvalid, Crash)):
            stage(path, layer)
        layer.bury()
        assert_whole_or_absent(path, before)
        assert stage(path, FaultyLayer()).digest == DIGEST
        assert contents(path) == {BLOB: DATA}


def test_R34_file_and_folder_are_synced_before_the_name_is_published_and_the_names_before_it_returns(
    tmp_path: Path,
) -> None:
    layer = calls_of(tmp_path, nothing)
    publish = layer.calls.index(("replace", BLOB))
    last_write = max(index for index, call in enumerate(layer.calls) if call == ("write", PART))
    before, after = layer.calls[last_write + 1 : publish], layer.calls[publish + 1 :]
    changes = [call for call in before if call[0] in ("fsync", "dup", "close", "chmod")]
    assert changes == [("fsync", PART), ("dup", PART), ("close", PART), ("fsync", "counted/staging")]
    assert [call for call in after if call[0] != "close"] == [
        ("chmod", PART),
        ("fsync", "counted/blobs"),
        ("fsync", "counted/staging"),
    ]
    made = [index for index, (name, _) in enumerate(layer.calls) if name == "mkdir"]
    assert [layer.calls[index + 1][0] for index in made] == ["fsync", "fsync"]


@pytest.mark.parametrize("operation", ["fsync", "close"])
def test_R34_bytes_that_could_not_be_synced_are_not_gone_on_from(tmp_path: Path, operation: str) -> None:
    layer = calls_of(tmp_path, nothing)
    first = layer.calls.index((operation, PART))
    store = tmp_path / "store"
    store.mkdir()
    with pytest.raises(StoreFault) as caught:
        stage(store, FaultyLayer(first, disk_error(errno.EIO), write_limit=400))
    assert caught.value.details["errno"] == errno.EIO
    assert contents(store) == {}


def test_R34_a_publication_whose_folder_was_not_synced_is_synced_by_the_next_staging(tmp_path: Path) -> None:
    layer = calls_of(tmp_path, nothing)
    sync = layer.calls.index(("fsync", "counted/blobs"))
    store = tmp_path / "store"
    store.mkdir()
    with pytest.raises(StoreFault):
        stage(store, FaultyLayer(sync, disk_error(errno.EIO), write_limit=400))
    assert contents(store) == {BLOB: DATA}
    again = FaultyLayer()
    assert not stage(store, again).published
    assert ("fsync", "store/blobs") in again.calls


def test_a_mismatch_that_cannot_be_removed_is_still_told_as_a_mismatch(tmp_path: Path) -> None:
    layer = FaultyLayer()
    artifacts = open_store(tmp_path, layer)
    layer.before["unlink"] = lambda _: setattr(layer, "fail_at", len(layer.calls))
    layer.error = disk_error(errno.EIO)
    with pytest.raises(ArtifactInvalid, match="have the SHA-256") as caught:
        artifacts.stage(Pieces(DATA[::-1]), DIGEST, SIZE)
    assert "can't remove" in caught.value.__notes__[0]
    with pytest.raises(ArtifactInvalid, match="from an earlier attempt"):
        artifacts.stage(Pieces(), DIGEST, SIZE)
    assert contents(tmp_path) == {}


def test_a_disk_that_fills_up_on_the_way_keeps_what_came_to_go_on_from(tmp_path: Path) -> None:
    layer = calls_of(tmp_path, nothing)
    third = [index for index, call in enumerate(layer.calls) if call == ("write", PART)][2]
    store = tmp_path / "store"
    store.mkdir()
    with pytest.raises(StoreFault, match="free some space"):
        stage(store, FaultyLayer(third, disk_error(errno.ENOSPC), write_limit=400))
    assert contents(store) == {PART: DATA[:800]}
    assert stage(store, FaultyLayer()) == Staged(DIGEST, SIZE, SIZE - 800, 800, published=True)
