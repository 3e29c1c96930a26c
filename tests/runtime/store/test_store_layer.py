"""What the store stands on: digests, folders, locks, and the refusal of systems that lack them."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.store import layer as layers
from coresident.runtime.store.artifacts import Artifacts
from coresident.runtime.store.digests import check_digest, is_digest, sha256_of
from coresident.runtime.store.faults import FAULTS, StoreBusy, StoreFault
from coresident.runtime.store.folders import Folder, child_or_none
from coresident.runtime.store.leases import Leases
from coresident.runtime.store.locks import FileLock
from hypothesis import given
from hypothesis import strategies as st

from support.faulty_layer import OPERATIONS, FaultyLayer
from support.stores import DIGEST, DISK_ERRORS, EMPTY, Pieces, disk_error, open_store, refused

MALFORMED = (
    "",
    DIGEST[:-1],
    DIGEST + "0",
    DIGEST.upper(),
    DIGEST[:-1] + "g",
    DIGEST + "\n",
    "../" + DIGEST[3:],
    "/" + DIGEST[1:],
    DIGEST[:-1] + "\0",
    DIGEST[:-1] + "\N{ARABIC-INDIC DIGIT ZERO}",
    "sha256:" + DIGEST,
    " " * 64,
    "." * 64,
    "9" * 10_000,
    DIGEST.encode(),
    None,
    7,
)


@pytest.mark.parametrize("digest", MALFORMED, ids=range(len(MALFORMED)))
def test_R31_a_malformed_digest_is_refused_before_any_file_is_touched(tmp_path: Path, digest: object) -> None:
    layer = FaultyLayer()
    artifacts = open_store(tmp_path / "store", layer)
    leases = Leases(artifacts.root)
    layer.calls.clear()
    for use in (
        artifacts.has,
        artifacts.verify,
        artifacts.open,
        artifacts.remove,
        artifacts.remove_partial,
        lambda wrong: artifacts.stage(Pieces(), wrong, 1),
        lambda wrong: artifacts.stage_file(__file__, wrong or "-"),
        leases.take,
        leases.count,
    ):
        with refused("digest") as caught:
            use(digest)
        assert len(str(caught.value)) < 300
    assert layer.calls == []


@given(st.text(alphabet=st.sampled_from("0123456789abcdefABCDEF/.\0\ng "), min_size=60, max_size=68))
def test_R31_only_64_lower_case_hexadecimal_digits_are_a_digest(text: str) -> None:
    right = len(text) == 64 and set(text) <= set("0123456789abcdef")
    assert is_digest(text) == right
    if right:
        assert check_digest(text) == text
    else:
        with pytest.raises(ArtifactInvalid):
            check_digest(text)


def test_FIELD_81_the_digest_of_nothing_and_of_one_flipped_bit() -> None:
    assert sha256_of(io.BytesIO()) == EMPTY
    data = bytearray(3 << 20)
    before = sha256_of(io.BytesIO(data))
    data[2 << 20] ^= 0b1000
    assert sha256_of(io.BytesIO(data)) != before


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "/x", "a\0b"])
def test_a_folder_opens_single_names_only(tmp_path: Path, name: str) -> None:
    layer = FaultyLayer()
    folder = Folder.at(tmp_path, layer)
    layer.calls.clear()
    for use in (folder.child, folder.file, folder.entry, folder.unlink, folder.rmdir):
        with pytest.raises(InvalidRequest):
            use(name)
    for move in (folder.replace, folder.link):
        with pytest.raises(InvalidRequest):
            move(name, folder, "new")
        with pytest.raises(InvalidRequest):
            move("old", folder, name)
    assert layer.calls == []


def test_what_a_store_makes_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store"
    store = open_store(path)
    Leases(store.root).take(DIGEST)
    assert {entry.stat().st_mode & 0o077 for entry in (path, *path.rglob("*"))} == {0}


def test_R40_the_name_of_a_new_store_is_on_the_medium_before_anything_is_in_it(tmp_path: Path) -> None:
    layer = FaultyLayer()
    Folder.at(tmp_path / "deep" / "store", layer, create=True).close()
    assert [call for call in layer.calls if call[0] in ("mkdir", "fsync")] == [
        ("mkdir", str(tmp_path / "deep")),
        ("fsync", str(tmp_path)),
        ("mkdir", str(tmp_path / "deep" / "store")),
        ("fsync", str(tmp_path / "deep")),
    ]
    assert layer.paths == {}


ODD = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT], ids=["read", "write"])
def test_FIELD_80_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str, flags: int) -> None:
    ODD[kind](tmp_path / "odd")
    with Folder.at(tmp_path) as folder, refused("not a file", file=str(tmp_path / "odd")):
        folder.file("odd", flags)
    if kind == "socket":
        return
    with open_store(tmp_path / "store").root as root, refused("not a file", file=str(tmp_path / "odd")):
        Artifacts(root).stage_file(tmp_path / "odd")


def test_FIELD_80_missing_folders_files_and_files_in_the_place_of_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with refused("missing", file=str(tmp_path / "none")):
        Folder.at(tmp_path / "none")
    with Folder.at(tmp_path) as folder:
        with refused("missing"):
            folder.child("none")
        with refused("missing"):
            folder.file("none")
        with refused("not a folder"):
            folder.child("file")
        with child_or_none(folder, "none") as none, child_or_none(none, "deeper") as deeper:
            assert (none, deeper) == (None, None)
        with refused("not a folder"), child_or_none(folder, "file"):
            pass
    with pytest.raises(InvalidRequest, match="closed"):
        folder.names()


@pytest.mark.parametrize("number", DISK_ERRORS)
def test_errors_of_the_system_are_typed_and_keep_their_cause(tmp_path: Path, number: int) -> None:
    with pytest.raises(StoreFault) as caught:
        open_store(tmp_path / "store", FaultyLayer(0, disk_error(number)))
    assert caught.value.details == {"operation": "open", "path": str(tmp_path / "store"), "errno": number}
    assert isinstance(caught.value.__cause__, OSError)
    assert os.strerror(number) in str(caught.value)


def test_the_faults_an_error_may_name_are_all_known() -> None:
    assert len(set(FAULTS)) == len(FAULTS)
    assert "pause" not in OPERATIONS
    assert {"open", "read", "write", "fsync", "replace", "close", "lock", "unlink"} <= set(OPERATIONS)


class Patience(FaultyLayer):
    """Counts the pauses between attempts instead of making them."""

    pauses = 0

    def pause(self, seconds: float) -> None:
        """Nothing passes."""
        self.pauses += 1


def test_locks_exclude_across_descriptors_and_give_up_after_their_timeout(tmp_path: Path) -> None:
    layer = Patience()
    folder = Folder.at(tmp_path, layer)
    with FileLock.take(folder, "lock") as held:
        assert held.held
        assert FileLock.attempt(folder, "lock") is None
        assert FileLock.attempt(folder, "lock", shared=True) is None
        with pytest.raises(StoreBusy, match="locked by another process"):
            FileLock.take(folder, "lock", timeout_s=0.5)
    assert layer.pauses == 50
    assert not held.held
    with FileLock.take(folder, "lock", shared=True), FileLock.take(folder, "lock", shared=True, timeout_s=0):
        assert FileLock.attempt(folder, "lock") is None
    folder.close()
    assert layer.paths == {}


def test_a_lock_on_a_file_that_was_moved_away_is_taken_on_the_one_that_has_the_name_now(tmp_path: Path) -> None:
    layer = FaultyLayer()
    folder = Folder.at(tmp_path, layer)
    layer.before["lock"] = lambda _: os.rename(tmp_path / "lock", tmp_path / "elsewhere")
    with FileLock.take(folder, "lock") as lock:
        assert lock.file.status().st_ino == (tmp_path / "lock").stat().st_ino
    layer.before["lock"] = lambda _: os.unlink(tmp_path / "lock")
    assert FileLock.attempt(folder, "lock") is None
    folder.close()
    assert layer.paths == {}


@pytest.mark.parametrize("number", DISK_ERRORS)
def test_a_lock_whose_taking_fails_at_any_call_is_not_held_and_leaves_nothing_open(tmp_path: Path, number: int) -> None:
    counted = FaultyLayer()
    with Folder.at(tmp_path, counted) as folder, FileLock.take(folder, "lock"):
        taken = len(counted.calls)
    for index in range(1, taken):
        layer = FaultyLayer()
        folder = Folder.at(tmp_path, layer)
        layer.fail_at, layer.error = index, disk_error(number)
        with pytest.raises(StoreFault):
            FileLock.take(folder, "lock")
        with FileLock.take(folder, "lock", timeout_s=0):
            pass
        folder.close()
        assert layer.paths == {}


WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = None
import coresident
from coresident.runtime.store import artifacts, collect, leases, locks
from coresident.runtime.store.faults import StoreFault
from coresident.runtime.store.folders import Folder
try:
    Folder.at(sys.argv[1], create=True)
except StoreFault as fault:
    print(fault)
"""


def test_a_system_without_file_locks_imports_everything_and_refuses_a_store_by_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_LOCKS, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "needs advisory file locks" in done.stdout
    assert not (tmp_path / "store").exists()


def test_on_macos_the_drive_is_made_to_write_its_cache_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    answers = [0, disk_error(errno.ENOTSUP), disk_error(errno.EIO)]

    def full_sync(fd: int, command: int) -> int:
        done.append("full")
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(layers, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(layers.fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(layers.fcntl, "fcntl", full_sync)
    monkeypatch.setattr(layers.os, "fsync", lambda fd: done.append("plain"))
    with Folder.at(tmp_path) as folder:
        folder.sync()
        folder.sync()
        with pytest.raises(StoreFault, match="sync"):
            folder.sync()
    assert done == ["full", "full", "plain", "full"]
