"""The registry of physical devices: one bound for all schedulers of a user, whatever their processes do."""

from __future__ import annotations

import errno
import json
import os
import shutil

import pytest
from coresident.actors.errors import ArtifactInvalid, BudgetExceeded
from coresident.runtime.host.registrations import MOST_BYTES, Claim, Published
from coresident.runtime.host.registry import LOCK, Registry
from coresident.runtime.store.faults import StoreBusy, StoreFault
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.layer import Layer
from coresident.runtime.store.locks import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs


def claim(partition: int, device: str = "gpu", physical: int = 62, label: str = "a model") -> Claim:
    return Claim(device, partition, physical, "reference", label)


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "run")


def held(registry) -> list[int]:
    return sorted(entry.claim.partition for entry in registry.entries())


def test_R3_two_names_of_one_device_share_its_bytes_and_two_devices_do_not(registry):
    mlx = Claim("host", 40, 62, "mlx", "one")
    numpy = Claim("host", 40, 62, "reference", "other")
    first = registry.register(mlx)
    with pytest.raises(BudgetExceeded) as refused:
        registry.register(numpy)
    registry.register(claim(40, "another"))
    first.release()
    registry.register(numpy)
    assert held(registry) == [40, 40]
    assert (refused.value.details["asked"], refused.value.details["available"]) == (40, 22)


def test_a_refusal_names_who_holds_what_and_what_to_do(registry):
    registry.register(claim(40, label="SmolLM2"))
    with pytest.raises(BudgetExceeded) as refused:
        registry.register(claim(32))
    for words in (
        f"process {os.getpid()} with SmolLM2 on reference holds 40",
        "'gpu' of 62 bytes",
        "asks for 32 bytes, 22 are available, 10 are missing",
        "coresident status",
        "lower device.partition",
        "device.physical",
    ):
        assert words in refused.value.message
    with pytest.raises(BudgetExceeded, match="nobody holds any of it") as alone:
        registry.register(claim(63, "empty"))
    assert "close" not in alone.value.message
    assert "lower device.partition to at most 62 bytes (0.0 GiB)" in alone.value.message


def test_exactly_what_is_left_is_admitted(registry):
    registry.register(claim(40))
    registry.register(claim(22))
    with pytest.raises(BudgetExceeded):
        registry.register(claim(1))


def test_where_two_give_a_device_different_sizes_the_smaller_one_counts(registry):
    small = registry.register(claim(10, physical=16))
    with pytest.raises(BudgetExceeded):
        registry.register(claim(10, physical=64))
    small.release()
    registry.register(claim(20, physical=64))
    with pytest.raises(BudgetExceeded, match="0 are available"):
        registry.register(claim(1, physical=16))


def test_a_device_of_unknown_size_bounds_nothing_but_counts_for_others(registry):
    registry.register(claim(10**12, physical=0))
    registry.register(claim(10**12, physical=0))
    with pytest.raises(BudgetExceeded):
        registry.register(claim(1))


@settings(max_examples=40)
@given(st.lists(st.one_of(st.integers(0, 70), st.just("release")), max_size=12))
def test_FIELD_59_the_sum_never_exceeds_the_device_and_what_fits_is_admitted(tmp_path_factory, steps):
    registry, open_now = Registry(tmp_path_factory.mktemp("sums") / "run"), []
    for step in steps:
        if step == "release":
            if open_now:
                open_now.pop(0).release()
            continue
        fits = step + sum(held(registry)) <= 62
        try:
            open_now.append(registry.register(claim(step)))
        except BudgetExceeded:
            assert not fits
        else:
            assert fits
        assert sum(held(registry)) <= 62
    for each in open_now:
        each.release()
        each.release()
    assert registry.entries() == ()
    assert not registry.path.exists() or set(os.listdir(registry.path)) <= {LOCK}


def test_nothing_registered_and_no_folder_is_nothing(registry):
    assert registry.entries() == ()
    assert not registry.path.exists()


class Counting(Layer):
    """Waits for nothing, and counts the waits."""

    def __init__(self):
        self.pauses = 0

    def pause(self, seconds):
        self.pauses += 1


def test_the_lock_is_never_waited_for_without_a_bound(tmp_path):
    layer = Counting()
    registry = Registry(tmp_path / "run", layer, lock_seconds=2)
    registry.register(claim(1)).release()
    with Folder.at(tmp_path / "run") as folder, FileLock.take(folder, LOCK), pytest.raises(StoreBusy, match="2 s"):
        registry.register(claim(1))
    assert layer.pauses == 200
    registry.register(claim(1))


class Failing(Layer):
    """Refuses to open files for writing, as a disk or a mount does."""

    def __init__(self, number=0, suffix=""):
        self.number, self.suffix = number, suffix

    def open(self, name, flags, mode=0o600, dir_fd=None):
        if self.number and flags & (os.O_CREAT | os.O_WRONLY) and name.endswith(self.suffix):
            raise OSError(self.number, os.strerror(self.number))
        return super().open(name, flags, mode, dir_fd)

    def mkdir(self, name, mode=0o700, dir_fd=None):
        if self.number:
            raise OSError(self.number, os.strerror(self.number))
        super().mkdir(name, mode, dir_fd)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_made_or_written_is_a_typed_fault(tmp_path, number):
    with pytest.raises(StoreFault) as fault:
        Registry(tmp_path / "run", Failing(number)).register(claim(1))
    assert fault.value.details["errno"] == number
    os.mkdir(tmp_path / "there", 0o700)
    with pytest.raises(StoreFault):
        Registry(tmp_path / "there", Failing(number)).register(claim(1))


def test_what_fails_half_way_holds_nothing(tmp_path):
    registry = Registry(tmp_path / "run", Failing(errno.ENOSPC, ".json"))
    os.mkdir(registry.path, 0o700)
    with pytest.raises(StoreFault):
        registry.register(claim(62))
    registry._layer.number = 0
    registry.register(claim(62))


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path, mode):
    registry = Registry(tmp_path / "run")
    os.mkdir(registry.path)
    registry.path.chmod(mode)
    with pytest.raises(StoreFault, match="only you can write to"):
        registry.register(claim(1))


def test_a_folder_behind_a_link_is_not_trusted(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactInvalid, match="symbolic link"):
        Registry(tmp_path / "run").register(claim(1))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_clock_that_steps_back_changes_nothing(tmp_path):
    now = [2_000_000_000.0]
    registry = Registry(tmp_path / "run", clock=lambda: now[0])
    registry.register(claim(20, label="first"))
    now[0] = 5.0
    registry.register(claim(20, label="second"))
    assert held(registry) == [20, 20]
    with pytest.raises(BudgetExceeded):
        registry.register(claim(23))
    now[0] = -1.0
    assert held(registry) == [20, 20]


def test_what_is_published_is_read_and_nothing_published_is_unknown(registry):
    registration = registry.register(claim(1))
    assert registry.entries()[0].published == Published()
    said = Published("faulted", 7, 0, ("retry", "repair"), "DeviceLost: gone", (12, 13))
    registration.publish(said)
    assert registry.entries()[0].published == said
    registration.publish(Published("ready", 8, 512))
    assert registry.entries()[0].published == Published("ready", 8, 512)
    registration.release()
    assert [name for name in os.listdir(registry.path) if name != LOCK] == []


def test_what_an_ended_process_had_half_published_is_removed_and_what_a_live_one_has_is_not(registry):
    live = registry.register(claim(1))
    live.publish(Published("ready"))
    for stray in ("7-a.state", "7-a.part", "7-b.json", "7-b.state", f"{live.name}.part", "notes.txt"):
        (registry.path / stray).touch()
    registry.register(claim(1)).release()
    kept = {f"{live.name}.json", f"{live.name}.state", f"{live.name}.part", "notes.txt", LOCK}
    assert set(os.listdir(registry.path)) == kept


def test_a_folder_that_is_removed_meanwhile_is_said_and_stops_nobody(registry):
    with capture_logs() as logs:
        first = registry.register(claim(40))
        shutil.rmtree(registry.path)
        first.publish(Published("ready"))
        first.publish(Published("faulted"))
        second = registry.register(claim(40))
        first.release()
        assert held(registry) == [40]
        second.release()
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["registry.unpublished"]


def test_what_is_published_is_bounded(registry):
    registration = registry.register(claim(1, label="x" * 100_000))
    registration.publish(Published("faulted", 1, 0, (), "y" * 100_000))
    (entry,) = registry.entries()
    assert entry.published.error.endswith("y...")
    assert all(path.stat().st_size < 2_000 for path in registry.path.iterdir())


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"revision": "x"}', b"\xff\xfe", b" " * (MOST_BYTES + 1), b"[" * 9000]
)
def test_R30_a_torn_or_damaged_state_says_nothing_and_counts_for_nothing(registry, text):
    registration = registry.register(claim(40))
    registration.publish(Published("ready", 1, 256))
    (state,) = registry.path.glob("*.state")
    state.write_bytes(text)
    assert [entry.published for entry in registry.entries()] == [Published()]
    with pytest.raises(BudgetExceeded):
        registry.register(claim(23))


def test_a_registration_of_a_newer_version_is_read_and_one_that_cannot_be_read_is_said(registry):
    registry.register(claim(40))
    (path,) = registry.path.glob("*.json")
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "colour": "red", "claim": {**body["claim"], "queue": 3}}))
    assert held(registry) == [40]
    path.write_text('{"pid": ')
    with capture_logs() as logs:
        registry.register(claim(40))
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["registry.unreadable"]


def test_a_disk_that_refuses_what_is_published_is_said_once_and_stops_nobody(tmp_path):
    layer = Failing(suffix=".part")
    registration = Registry(tmp_path / "run", layer).register(claim(1))
    layer.number = errno.ENOSPC
    with capture_logs() as logs:
        registration.publish(Published("ready", 1, 1))
        registration.publish(Published("closing", 2, 0))
    assert [line["event"] for line in logs] == ["registry.unpublished"]
    registration.release()
    assert Registry(tmp_path / "run").entries() == ()
