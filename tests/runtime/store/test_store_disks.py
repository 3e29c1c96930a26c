"""Disks that are too small, full, or read-only, real and made up; and clocks that step back."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from coresident.runtime.store.artifacts import Artifacts, Partial, Staged
from coresident.runtime.store.collect import Keep, collect
from coresident.runtime.store.faults import StoreFault
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.leases import Leases

from support.faulty_layer import FaultyLayer
from support.stores import DATA, DIGEST, Pieces, contents, digest_of, disk_error, leave_part, open_store

SIZE = len(DATA)
PART = f"staging/{DIGEST}.part"
BLOB = f"blobs/{DIGEST}"


def test_a_disk_that_is_known_to_be_too_small_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Small(FaultyLayer):
        def free_bytes(self, fd: int) -> int:
            return 600

    layer = Small()
    leave_part(tmp_path, DATA[:100])
    with pytest.raises(StoreFault, match=f"{SIZE - 100} bytes .* 600 bytes are free") as caught:
        open_store(tmp_path, layer).stage(Pieces(), DIGEST, SIZE)
    assert caught.value.details["errno"] == errno.ENOSPC
    assert (caught.value.details["asked"], caught.value.details["available"]) == (SIZE - 100, 600)
    assert "write" not in layer.operations
    assert contents(tmp_path) == {PART: DATA[:100]}


def mount(*arguments: str) -> None:
    """Mount something, or skip."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system of a test's own can't be mounted here: {done.stderr.strip()}")


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """A file system of ``size`` bytes; skips where this user can't have one."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("a file system of a test's own needs root on Linux")
    path.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_real_disk_that_is_full_and_one_that_fills_up(tmp_path: Path) -> None:
    data = os.urandom(600 << 10)
    digest = digest_of(data)
    with small_disk(tmp_path / "disk", 1 << 20) as disk, open_store(disk / "store").root as root:
        artifacts = Artifacts(root)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(600 << 10))
        with pytest.raises(StoreFault, match="are missing"):
            artifacts.stage(Pieces(data, 1 << 16), digest, len(data))
        assert contents(disk / "store") == {}
        ballast.unlink()

        def fill(done: int, _: int) -> None:
            if done == 5 << 16:
                ballast.write_bytes(bytes(680 << 10))

        with pytest.raises(StoreFault) as caught:
            artifacts.stage(Pieces(data, 1 << 16), digest, len(data), fill)
        assert caught.value.details["errno"] == errno.ENOSPC
        (part,) = artifacts.partials()
        assert part.size >= 5 << 16
        assert artifacts.list() == ()
        ballast.unlink()
        assert artifacts.stage(Pieces(data, 1 << 16), digest, len(data)).resumed == part.size
        assert contents(disk / "store") == {f"blobs/{digest}": data}


def read_only_answers(artifacts: Artifacts) -> None:
    """What a store that can't be written to does, and refuses."""
    leases, other = Leases(artifacts.root), digest_of(b"other")
    assert artifacts.verify(DIGEST, SIZE) == SIZE
    assert artifacts.has(DIGEST)
    assert [one.digest for one in artifacts.list()] == [DIGEST]
    os.close(artifacts.open(DIGEST))
    assert artifacts.stage(Pieces(), DIGEST, SIZE) == Staged(DIGEST, SIZE)
    assert leases.count(DIGEST) == 0
    refusals: list[Callable[[], Any]] = [
        lambda: artifacts.stage(Pieces(b"other"), other, 5),
        lambda: artifacts.remove(DIGEST),
        lambda: leases.take(DIGEST),
        lambda: collect(artifacts.root, lambda leased: Keep(leased, leased)),
    ]
    for refusal in refusals:
        with pytest.raises(StoreFault, match="read-only") as caught:
            refusal()
        assert caught.value.details["errno"] == errno.EROFS


class ReadOnly(FaultyLayer):
    """A file system that is mounted read-only."""

    def call(self, name: str, real: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Refuse what would change anything."""
        writes = name == "open" and arguments["flags"] & (os.O_CREAT | os.O_RDWR | os.O_WRONLY)
        if writes or name in ("write", "truncate", "chmod", "replace", "link", "unlink", "mkdir", "rmdir"):
            raise disk_error(errno.EROFS)
        return super().call(name, real, arguments)


def test_a_read_only_store_reads_and_refuses_to_change(tmp_path: Path) -> None:
    open_store(tmp_path).stage(Pieces(), DIGEST, SIZE)
    read_only_answers(open_store(tmp_path, ReadOnly()))
    assert contents(tmp_path) == {BLOB: DATA}


def test_a_real_read_only_store_reads_and_refuses_to_change(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        open_store(disk / "store").stage(Pieces(), DIGEST, SIZE)
        with Leases(Folder.at(disk / "store")).take(DIGEST):
            pass
        mount("-o", "remount,ro", str(disk))
        with Folder.at(disk / "store") as root:
            read_only_answers(Artifacts(root))
        assert contents(disk / "store") == {BLOB: DATA, "leases/gate": b""}
        assert Artifacts(Folder.at(disk / "store")).partials() == ()


def test_the_clock_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that steps back, and times of files that lie ahead or long ago, change nothing: nobody looks."""

    def asked(*_: object) -> float:
        raise AssertionError("the clock was asked")

    path = leave_part(tmp_path, DATA[:500])
    os.utime(path, (2**33, 2**33))
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
        monkeypatch.setattr(time, name, asked)
    artifacts = open_store(tmp_path)
    leases = Leases(artifacts.root)
    assert artifacts.partials() == (Partial(DIGEST, 500, live=False),)
    assert artifacts.stage(Pieces(), DIGEST, SIZE).resumed == 500
    for moment in (0, 2**33):
        os.utime(tmp_path / BLOB, (moment, moment))
        with leases.take(DIGEST) as lease:
            os.utime(tmp_path / "leases" / DIGEST / lease.entry, (moment, moment))
            assert (leases.count(DIGEST), leases.reap(timeout_s=1)) == (1, 0)
            kept = collect(artifacts.root, lambda leased: Keep(leased, leased))
            assert kept.artifacts == ()
    gone = collect(artifacts.root, lambda leased: Keep(leased, leased))
    monkeypatch.undo()
    assert gone.artifacts == (DIGEST,)
