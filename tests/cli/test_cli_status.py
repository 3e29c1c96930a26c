"""``coresident status``: what runs, what it holds, and what the stores select."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.actors.errors import BudgetExceeded, DeviceLost
from coresident.runtime.host.registrations import Claim, Published
from coresident.runtime.host.registry import Registry

from coresident.cli.status import status_of
from support.commands import read_until
from support.live import Bench, config, run
from support.stored_models import Shop, open_shop

MIB = 2**20


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Nobody else's registrations and store."""
    monkeypatch.setenv("CORESIDENT_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("CORESIDENT_STORE", str(tmp_path / "mine"))
    return Registry(tmp_path / "run")


def text_of(done) -> str:
    """What a command says, however its lines are cut."""
    return " ".join(done.out.split())


def test_nothing_running_and_no_store_is_said_and_makes_no_folders(cli: Callable, tmp_path: Path) -> None:
    done = cli("status")
    assert done.code == 0
    assert "No scheduler of yours is open on this machine." in text_of(done)
    assert f"Registrations would be in {tmp_path / 'run'}" in text_of(done)
    assert f"There is no store at {tmp_path / 'mine'}" in text_of(done)
    assert list(tmp_path.iterdir()) == []
    found = cli("status", "--json").json()
    assert (found["schedulers"], found["devices"]) == ([], [])
    assert [(each["path"], each["exists"]) for each in found["stores"]] == [(str(tmp_path / "mine"), False)]


def test_R30_open_schedulers_are_shown_with_their_readiness_and_what_they_hold() -> None:
    about = {"partition": "64 MiB", "workspace": "8 MiB", "id": "gpu", "physical": "200 MiB"}

    async def main() -> None:
        async with Bench(config(device=about)).open() as desk, Bench(config(device=about)).open():
            now = desk.scheduler.readiness()
            first, second = status_of(desk.assembly.config)["schedulers"]
            assert (first["pid"], first["state"], first["revision"]) == (os.getpid(), "ready", now.revision)
            assert (first["admitted_context"], first["partition"], first["device"]) == (512, 64 * MIB, "gpu")
            assert "synthetic" in first["label"]
            assert (first["workers"], first["error"], second["state"]) == ((), "", "ready")
            desk.backend.fail("decode", DeviceLost("the cable was pulled"))
            with pytest.raises(DeviceLost):
                await desk.scheduler.generate("The sea", max_tokens=4)
            found = status_of(desk.assembly.config)
            assert sorted(each["state"] for each in found["schedulers"]) == ["faulted", "ready"]
            (device,) = found["devices"]
            assert device == {"device": "gpu", "physical": 200 * MIB, "held": 128 * MIB, "schedulers": 2}

    run(main)
    assert status_of(config())["schedulers"] == []


def test_a_fault_is_shown_with_its_reason_and_the_ways_out(cli: Callable, registry: Registry) -> None:
    registration = registry.register(Claim("gpu", 64 * MIB, 0, "mlx", "SmolLM2"))
    registration.publish(Published("faulted", 3, 0, ("retry", "repair"), "DeviceLost: the cable was pulled", (4321,)))
    said = text_of(cli("status"))
    for words in (
        "SmolLM2",
        "mlx",
        "faulted",
        "4321",
        "retry or repair",
        "64.0 MiB",
        "DeviceLost: the cable was pulled",
    ):
        assert words in said
    assert "unknown" in said
    registration.release()


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_a_scheduler_takes_one_line_with_its_figures_whole(
    cli: Callable, registry: Registry, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    label = "a model with a name of many words (llama, 30 layers, 4 bits in groups of 32, safetensors)"
    earlier = Registry(registry.path, clock=lambda: time.time() - 90_000)
    registration = earlier.register(Claim("gpu", 64 * MIB, 0, "reference", label))
    registration.publish(Published("recovering", 3, 131072, (), "", (4321,)))
    (line,) = (line for line in cli("status").out.splitlines() if "recovering" in line)
    assert line.startswith(f"{os.getpid()}  a model")
    assert line.split()[-7:] == ["131,072", "64.0", "MiB", "25", "h", "0", "min", "4321"][-7:]
    assert len(line.rstrip()) <= columns
    registration.release()


def test_what_a_clock_that_stepped_back_says_is_no_negative_time(registry: Registry) -> None:
    ahead = Registry(registry.path, clock=lambda: 9e9)
    registration = ahead.register(Claim("gpu", 1, 0, "mlx", "x"))
    assert status_of(config())["schedulers"][0]["open_seconds"] == 0
    registration.release()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return open_shop(tmp_path / "shop")


def test_leases_and_selections_of_the_stores_in_use_are_shown(cli: Callable, shop: Shop, tmp_path: Path) -> None:
    async def main() -> None:
        async with shop.bench().open():
            found = status_of(config())
            assert [each["path"] for each in found["stores"]] == [str(tmp_path / "mine"), str(shop.store.folder)]
            store = found["stores"][1]
            (selected,), (manifest,) = store["selections"], store["manifests"]
            assert (selected["model"], selected["device"]) == ("tiny", "any")
            assert selected["manifest"] == manifest["digest"] == shop.selection.manifest
            assert (manifest["leases"], manifest["bytes"]) == (1, shop.selection.size)
            json.dumps(found)
            said = text_of(cli("status"))
            assert f"Store {shop.store.folder}: 1 artifact of" in said
            assert shop.selection.manifest[:12] in said

    run(main)
    store = cli("status", "--store", shop.store.folder, "--json").json()["stores"][0]
    assert [each["leases"] for each in store["manifests"]] == [0]


def test_a_damaged_journal_is_shown_and_ends_with_an_error_code(cli: Callable, shop: Shop, registry: Registry) -> None:
    journal = shop.store.folder / "journal"
    journal.write_bytes(b"x" + journal.read_bytes()[1:])
    registration = registry.register(Claim("gpu", 1, 0, "mlx", "x"))
    done = cli("status", "--store", shop.store.folder)
    assert done.code == 1
    assert "is damaged" in text_of(done)
    assert "gpu" in text_of(done)
    registration.release()


def test_FIELD_59_every_process_counts_for_every_other_until_it_ends(
    cli: Callable, started: Callable, endless: Path
) -> None:
    """A demo in a process of its own, in the middle of its answer; then it is killed."""
    about = {"partition": "64 MiB", "workspace": "8 MiB", "physical": "150 MiB"}

    async def opened() -> str:
        async with Bench(config(device=about)).open() as desk:
            return desk.scheduler.readiness().state

    process = started("demo", "--config", endless, "--tokens", 50000, "--every", 60, "--plain")
    read_until(process, b"answer: ")
    (scheduler,) = cli("status", "--json").json()["schedulers"]
    assert (scheduler["pid"], scheduler["state"], scheduler["partition"]) == (process.pid, "ready", 128 * MIB)
    with pytest.raises(
        BudgetExceeded, match=f"process {process.pid} with .* holds {128 * MIB}.*{22 * MIB} are available"
    ):
        run(opened)
    process.kill()
    process.wait()
    assert cli("status", "--json").json()["schedulers"] == []
    assert run(opened) == "ready"
