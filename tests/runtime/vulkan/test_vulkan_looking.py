"""Devices as another process finds them: what it says, and what becomes of a driver that crashes or hangs."""

from __future__ import annotations

import os
import sys

import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.runtime.backends.vulkan import library, looking
from coresident.runtime.backends.vulkan.device import Device
from coresident.runtime.backends.vulkan.inventory import inventory
from coresident.runtime.backends.vulkan.kernels import load_kernels
from coresident.runtime.backends.vulkan.library import open_functions
from coresident.runtime.backends.vulkan.looking import look_at_device, look_at_devices
from coresident.runtime.backends.vulkan.profile import TRIED, grain_of, rounded, share_of
from hypothesis import given
from hypothesis import strategies as st

from support.vulkan_here import cpu_driver, found, needs_vulkan, without_a_loader, without_drivers

MIB = 1 << 20


def by(program: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-c", program)


def test_another_process_finds_what_this_one_finds() -> None:
    needs_vulkan()
    assert found().devices == inventory(open_functions())


def test_R63_R64_a_vendors_driver_is_there_for_the_other_process_while_it_looks(tmp_path, monkeypatch) -> None:
    driver = cpu_driver()
    without_drivers(tmp_path, monkeypatch)
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(copies))
    before = dict(os.environ)
    assert look_at_devices() == ()
    seen = look_at_device(None, None, driver).info
    assert (seen.kind, seen.unsuitable) == ("cpu", None)
    assert dict(os.environ) == before
    assert list(copies.iterdir()) == []


def test_a_missing_loader_is_said_with_what_to_install(tmp_path, monkeypatch) -> None:
    if library.missing():
        needs_vulkan()
    without_a_loader(tmp_path, monkeypatch)
    with pytest.raises(InvalidRequest, match=r"needs the Vulkan loader .* install it") as caught:
        look_at_devices()
    assert caught.value.details["missing"] == ("loader",)


def test_without_the_package_no_process_is_started(monkeypatch) -> None:
    monkeypatch.setattr(library, "missing", lambda: ("vulkan",))
    monkeypatch.setattr(looking, "COMMAND", ("/nonexistent/program",))
    with pytest.raises(InvalidRequest, match=r"needs vulkan, not installed here: pip install 'coresident\[vulkan\]'"):
        look_at_devices()


def test_a_driver_that_crashes_takes_nothing_along(monkeypatch) -> None:
    needs_vulkan()
    crash = "import os, signal, sys; sys.stderr.write('bad driver'); sys.stderr.flush(); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(looking, "COMMAND", by(crash))
    with pytest.raises(BackendFault, match=r"signal 9 and no answer.*VK_DRIVER_FILES.*Its last words: bad driver$"):
        look_at_devices()


def test_a_driver_that_hangs_is_ended(monkeypatch) -> None:
    needs_vulkan()
    monkeypatch.setattr(looking, "COMMAND", by("import signal; signal.pause()"))
    monkeypatch.setattr(looking, "SECONDS", 0.05)
    with pytest.raises(BackendFault, match=r"took longer than 0.05 s and was ended"):
        look_at_devices()


def test_what_a_driver_prints_is_no_part_of_the_answer(monkeypatch) -> None:
    needs_vulkan()
    noisy = (
        "import os; from coresident.runtime.backends.vulkan import looking as it; real = it.inventory\n"
        "it.inventory = lambda functions: os.write(1, b'{hello}') and real(functions)\n"
        "it.main()"
    )
    monkeypatch.setattr(looking, "COMMAND", by(noisy))
    assert look_at_devices() == found().devices


def test_a_profile_plans_what_the_device_takes() -> None:
    needs_vulkan()
    profile = look_at_device(None, 50)
    info = found().chosen
    assert (profile.info, profile.limits) == (info, info.limits)
    assert 0 < profile.budget() <= max(info.heaps)
    device = Device.open(open_functions(), info, kernels=load_kernels())
    try:
        assert [profile.requirement(size) for size in TRIED] == [device.requirement(size) for size in TRIED]
    finally:
        device.close()
    with pytest.raises(InvalidRequest, match=r"device\.index is 99: the Vulkan devices here are 0"):
        look_at_device(99, None)


@given(power=st.integers(0, 21), size=st.integers(1, 1 << 30))
def test_a_grain_is_found_whatever_it_is(power: int, size: int) -> None:
    def requirement(asked: int) -> int:
        return -(-asked // (1 << power)) << power

    grain = grain_of(requirement)
    assert grain == 1 << power
    assert rounded(size, grain) == requirement(size)


def test_a_driver_whose_allocations_follow_no_grain_is_refused_for_workers() -> None:
    with pytest.raises(BackendFault, match=r"takes \d+ bytes for a buffer of \d+: .* set device.executor to 'thread'"):
        grain_of(lambda size: 2 * size + 4 * MIB)


@pytest.mark.parametrize(("kind", "configured", "share"), [("cpu", None, 100), ("discrete", None, 80), ("cpu", 7, 7)])
def test_the_share_of_a_heap_is_a_gpus_or_a_cpus_unless_it_is_configured(kind, configured, share) -> None:
    class Info:
        pass

    Info.kind = kind
    assert share_of(Info, configured) == share
