"""``coresident devices`` with and without Vulkan's package, loader, drivers and devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from coresident.runtime.backends.vulkan import library, survey

from support.vulkan_here import found, needs_vulkan, without_a_loader, without_drivers


def state_of(cli: Callable, tables: bool = True) -> tuple[bool, str, list]:
    """Whether Vulkan is there, what is said of it, and its devices; ``tables`` say the same as JSON."""
    report = cli("devices", "--json").json()
    (vulkan,) = (backend for backend in report["backends"] if backend["name"] == "vulkan")
    if tables:
        shown = cli("devices")
        assert (shown.code, shown.err) == (0, "")
        assert "".join(vulkan["note"].split()[:3]) in "".join(shown.out.split())
        assert ("Vulkan devices" in shown.out) == bool(report["vulkan_devices"])
    return vulkan["available"], vulkan["note"], report["vulkan_devices"]


def test_without_the_package_it_says_what_to_install(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "missing", lambda: ("vulkan",))
    assert state_of(cli) == (False, "needs vulkan, not installed here: pip install 'coresident[vulkan]'", [])


def test_without_a_loader_it_says_what_to_install(cli: Callable, tmp_path: Path, monkeypatch) -> None:
    if library.missing():
        needs_vulkan()
    without_a_loader(tmp_path, monkeypatch)
    available, note, devices = state_of(cli, tables=False)
    assert (available, devices) == (False, [])
    assert note.startswith("needs the Vulkan loader")
    assert "libvulkan1" in note


def test_with_a_loader_and_no_driver_it_says_what_to_install(cli: Callable, tmp_path: Path, monkeypatch) -> None:
    needs_vulkan()
    without_drivers(tmp_path, monkeypatch)
    available, note, devices = state_of(cli, tables=False)
    assert (available, devices) == (False, [])
    assert note.startswith("the Vulkan loader is here, but no driver answers: install")


def test_with_a_driver_its_devices_are_listed(cli: Callable, monkeypatch) -> None:
    needs_vulkan()
    monkeypatch.setattr(survey, "look_at_devices", lambda: found().devices)
    available, note, devices = state_of(cli)
    assert (available, note) == (True, f"computes on {found().chosen.name}")
    assert [device["index"] for device in devices if device["chosen"]] == [found().chosen.index]
    for device in devices:
        assert device["name"]
        assert device["driver"]
        assert 0 < device["largest_buffer"] <= device["memory"]


def test_several_devices_and_unsuitable_ones_are_told_apart(cli: Callable, monkeypatch) -> None:
    needs_vulkan()
    info = found().chosen
    old = attrs.evolve(info, index=0, name="Old", unsuitable="its driver offers Vulkan 1.1, and 1.2 is needed")
    fast = attrs.evolve(info, index=1, name="Fast", kind="discrete", heaps=(8 << 30, 1 << 28))
    slow = attrs.evolve(info, index=2, name="Slow")
    monkeypatch.setattr(survey, "look_at_devices", lambda: (old, fast, slow))
    available, note, devices = state_of(cli)
    assert (available, note) == (True, "computes on Fast")
    assert [(device["memory"], device["chosen"]) for device in devices] == [
        (info.heaps[0], False),
        (8 << 30, True),
        (info.heaps[0], False),
    ]
    said = " ".join(cli("devices").out.split())
    for words in ("can't be used: its", "used with", "index = 2", "discrete", "8.0 GiB"):
        assert words in said
    monkeypatch.setattr(survey, "look_at_devices", lambda: (old,))
    available, note, devices = state_of(cli)
    assert (available, len(devices)) == (False, 1)
    assert "no Vulkan device here can be used (Old: its driver offers Vulkan 1.1" in note


def test_the_doctor_says_the_same_of_what_is_missing(cli: Callable, tmp_path: Path, monkeypatch) -> None:
    """One message and exit code 2, whichever command wants the device."""
    with monkeypatch.context() as without:
        without.setattr(library, "missing", lambda: ("vulkan",))
        for command in ("doctor", "plan", "warm"):
            done = cli(command, "--backend", "vulkan", "--model", "synthetic")
            assert (done.code, done.out) == (2, "")
            assert "needs vulkan, not installed here: pip install 'coresident[vulkan]'" in done.err
    if library.missing():
        needs_vulkan()
    with monkeypatch.context() as without:
        without.setattr(library, "import_module", raise_no_loader)
        done = cli("doctor", "--backend", "vulkan", "--model", "synthetic")
        assert (done.code, done.out) == (2, "")
        assert "needs the Vulkan loader" in done.err


def raise_no_loader(name: str) -> None:
    raise OSError("libvulkan.so.1: cannot open shared object file")


def test_the_doctor_without_a_driver_says_what_to_install(started: Callable, tmp_path: Path, monkeypatch) -> None:
    """In a process of its own: the loader of this one may have drivers open."""
    needs_vulkan()
    without_drivers(tmp_path, monkeypatch)
    process = started("doctor", "--backend", "vulkan", "--model", "synthetic", "--json")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert json.loads(err)["details"] == {"backend": "vulkan", "missing": ["driver"]}
    assert "no driver answers: install" in json.loads(err)["message"]


def test_a_partition_larger_than_the_device_is_refused_with_both_figures(cli: Callable, tmp_path: Path) -> None:
    needs_vulkan()
    path = tmp_path / "vulkan.toml"
    path.write_text('device = { backend = "vulkan", partition = "900 TiB", workspace = "8 MiB", share = 50 }\n')
    done = cli("plan", "--config", path, "--json")
    assert (done.code, done.out) == (2, "")
    details = json.loads(done.err)["details"]
    assert (details["field"], details["value"]) == ("device.partition", 900 << 40)
    assert 0 < details["limit"] <= max(found().chosen.heaps)
