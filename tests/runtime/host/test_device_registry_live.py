"""The live host and the registry: who is admitted beside whom, what is published, and what happens without a folder."""

from __future__ import annotations

import errno
import os
import sys
import types
from pathlib import Path

import pytest
import trio
from coresident.actors.errors import BackendFault, BudgetExceeded, DeviceLost, InvalidRequest
from coresident.runtime.backends.vulkan.describing import MemoryType
from coresident.runtime.config import DeviceConfig, HostConfig
from coresident.runtime.host import artifacts, physical
from coresident.runtime.host.artifacts import VARIABLE, runtime_folder
from coresident.runtime.host.physical import Physical, host_memory, physical_of
from coresident.runtime.host.registrations import Published
from coresident.runtime.host.registry import LOCK, Registry
from coresident.runtime.store.faults import StoreBusy
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.layer import OS_LAYER, Layer
from coresident.runtime.store.locks import FileLock
from structlog.testing import capture_logs

from support.backends import needs
from support.live import Bench, config, run
from support.vulkan_life import device_info

MIB = 2**20


@pytest.fixture(autouse=True)
def registry(tmp_path, monkeypatch) -> Registry:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "run"))
    return Registry(tmp_path / "run")


def bench(partition="64 MiB", device="gpu", has="100 MiB", **sections) -> Bench:
    about = {"partition": partition, "workspace": "8 MiB", "id": device, "physical": has}
    return Bench(config(device=about, **sections))


async def opens(it: Bench) -> int:
    async with it.open() as desk:
        return desk.scheduler.readiness().admitted_context


def test_R3_partitions_of_one_device_are_admitted_together_only_as_far_as_it_goes(registry):
    async def main():
        async with bench().open():
            with pytest.raises(BudgetExceeded, match=f"process {os.getpid()} with .*synthetic.* holds {64 * MIB}"):
                await opens(bench())
            async with bench("36 MiB").open(), bench(device="other").open():
                assert len(registry.entries()) == 3
        assert registry.entries() == ()
        await opens(bench("100 MiB"))

    run(main)


def test_a_refused_scheduler_has_loaded_nothing():
    async def main():
        async with bench().open():
            second = bench()
            with pytest.raises(BudgetExceeded):
                await opens(second)
            assert second.backend.loads.total() == 0
            assert second.assembly.supervisor.readiness().state == "new"

    run(main)


def test_FIELD_3_what_is_admitted_while_another_one_loads_is_what_is_admitted_alone():
    async def main():
        alone = await opens(bench("30 MiB", generation={"context": 0}))
        loading = bench("64 MiB")
        held = loading.backend.hold("load")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opens, loading)
            await held.reached()
            assert await opens(bench("30 MiB", generation={"context": 0})) == alone
            with pytest.raises(BudgetExceeded, match=f"{36 * MIB} are available"):
                await opens(bench("37 MiB"))
            held.release()

    run(main)


class States:
    """An observer that keeps what is published after each change of readiness."""

    def __init__(self, registry) -> None:
        self.registry, self.seen = registry, []

    def delivered(self, delivery) -> None:
        said = [entry.published for entry in self.registry.entries()]
        if said and said[-1:] != self.seen[-1:] and said != [Published()]:
            self.seen += said

    def token(self, request, index, at) -> None: ...

    def dropped(self, error) -> None:
        raise error


def test_R30_FIELD_63_what_is_published_is_false_the_moment_it_is_false(registry):
    async def main():
        async with bench().open() as desk:
            ready = registry.entries()[0].published
            assert ready == Published("ready", ready.revision, desk.scheduler.readiness().admitted_context)
            desk.backend.fail("decode", DeviceLost("the cable was pulled"))
            with pytest.raises(DeviceLost):
                await desk.scheduler.generate("The sea", max_tokens=4)
            lost = registry.entries()[0].published
            assert (lost.state, lost.admitted_context, lost.actions) == ("faulted", 0, ("retry", "repair"))
            assert lost.error.startswith("DeviceLost: the cable was pulled")
            await desk.scheduler.repair()
            again = registry.entries()[0].published
            assert (again.state, again.admitted_context, again.error) == ("ready", ready.admitted_context, "")
            assert ready.revision < lost.revision < again.revision
            assert len((await desk.scheduler.generate("The sea", max_tokens=4)).tokens) == 4

    run(main)


def test_R30_every_change_is_published_in_order(registry):
    states = States(registry)

    async def main():
        about = {"partition": "64 MiB", "workspace": "8 MiB"}
        await opens(Bench(config(device=about), [states]))

    run(main)
    assert [said.state for said in states.seen] == ["starting", "ready", "closing", "closed"]
    assert [said.revision for said in states.seen] == sorted(said.revision for said in states.seen)


def test_what_a_fault_at_the_start_held_is_given_back(registry):
    async def main():
        it = bench()
        it.backend.fail("load", BackendFault("it does not go"))
        with pytest.raises(BackendFault):
            await opens(it)
        it.check_closed()

    run(main)
    assert registry.entries() == ()


class ReadOnly(Layer):
    def mkdir(self, name, mode=0o700, dir_fd=None):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_without_a_folder_it_warns_and_goes_on_unless_the_registry_is_required(registry, monkeypatch):
    monkeypatch.setattr(artifacts, "Registry", lambda folder: Registry(folder, ReadOnly()))
    with capture_logs() as logs:
        assert run(lambda: opens(bench())) == 512
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert (warning["event"], warning["folder"]) == ("registry.unavailable", str(registry.path))
    assert "read-only" in warning["error"]
    assert "other processes don't know" in warning["effect"]
    with pytest.raises(InvalidRequest, match=r"host\.registry is 'required'.*read-only"):
        run(lambda: opens(bench(host={"registry": "required"})))


def test_a_file_where_the_folder_should_be_is_no_crash(tmp_path):
    (tmp_path / "file").write_text("")
    with capture_logs() as logs:
        run(lambda: opens(bench(host={"folder": str(tmp_path / "file" / "run")})))
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["registry.unavailable"]


def test_registry_off_registers_nothing(registry):
    async def main():
        async with bench(host={"registry": "off"}).open():
            assert not registry.path.exists()

    run(main)


class Hurried(Layer):
    def pause(self, seconds):
        pass


def test_a_lock_that_somebody_else_keeps_is_a_typed_error_in_bounded_time(registry, monkeypatch):
    monkeypatch.setattr(artifacts, "Registry", lambda folder: Registry(folder, Hurried()))
    registry.register(artifacts.Claim("gpu", 1, 0, "reference", "x")).release()
    busy = pytest.raises(StoreBusy, match="wait for it to finish, or end it")
    with Folder.at(registry.path, OS_LAYER) as folder, FileLock.take(folder, LOCK), busy:
        run(lambda: opens(bench()))


def test_the_folder_is_the_named_one_or_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts.tempfile, "gettempdir", lambda: "/somewhere/tmp")
    session = tmp_path / "session"
    session.mkdir()
    everything = {VARIABLE: "/named/run", "XDG_RUNTIME_DIR": str(session)}
    assert runtime_folder(HostConfig(folder="/configured"), everything) == Path("/configured")
    assert runtime_folder(HostConfig(), everything) == Path("/named/run")
    assert runtime_folder(HostConfig(), {"XDG_RUNTIME_DIR": str(session)}) == session / "coresident"
    gone = {"XDG_RUNTIME_DIR": str(tmp_path / "gone")}
    assert runtime_folder(HostConfig(), gone) == Path(f"/somewhere/tmp/coresident-{os.geteuid()}")


def test_backends_on_the_machines_own_memory_are_names_of_one_device():
    assert physical_of(DeviceConfig()) == Physical("host", host_memory())
    assert host_memory() > 0
    assert physical_of(DeviceConfig("modelled")) == Physical("modelled", 0)
    assert physical_of(DeviceConfig(id="mine", physical=7)) == Physical("mine", 7)
    assert physical_of(DeviceConfig(physical=7)) == Physical("host", 7)


@pytest.mark.parametrize(
    ("kind", "info", "found"),
    [
        ("cpu", {}, Physical("host", 123)),
        ("gpu", {"device_name": "B", "total_memory": 5, "uuid": "GPU-1"}, Physical("GPU-1", 5)),
        ("gpu", {"device_name": "B", "memory_size": 6}, Physical("B", 6)),
        ("gpu", {}, Physical("gpu", 0)),
    ],
)
def test_mlx_outside_macos_is_on_the_host_or_on_a_gpu_known_by_its_uuid(monkeypatch, kind, info, found):
    core = types.ModuleType("mlx.core")
    core.DeviceType = types.SimpleNamespace(cpu="cpu", gpu="gpu")
    core.default_device = lambda: types.SimpleNamespace(type=kind)
    core.device_info = lambda device: info
    monkeypatch.setitem(sys.modules, "mlx.core", core)
    monkeypatch.setattr(physical, "host_memory", lambda: 123)
    monkeypatch.setattr(sys, "platform", "linux")
    assert physical_of(DeviceConfig("mlx")) == found
    monkeypatch.setattr(sys, "platform", "darwin")
    assert physical_of(DeviceConfig("mlx")) == Physical("host", 123)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("cpu", Physical("host", 123)),
        ("integrated", Physical("host", 123)),
        ("discrete", Physical("00ff", 70)),
        ("virtual", Physical("00ff", 70)),
    ],
)
def test_R3_vulkan_is_on_the_host_or_on_a_gpu_known_by_its_uuid_with_the_memory_that_is_local_to_it(
    monkeypatch, kind, found
):
    monkeypatch.setattr(physical, "host_memory", lambda: 123)
    types_of_memory = (MemoryType(1, 0), MemoryType(6, 1), MemoryType(7, 2), MemoryType(1, 0))
    info = types.SimpleNamespace(kind=kind, uuid="00ff", memory_types=types_of_memory, heaps=(60, 1000, 10))
    planned = types.SimpleNamespace(info=info)
    assert physical_of(DeviceConfig("vulkan"), planned) == found
    assert physical_of(DeviceConfig("vulkan", id="mine"), planned) == Physical("mine", found.bytes)


def test_R3_vulkan_on_the_cpu_and_the_reference_backend_share_one_device(registry):
    needs("vulkan")

    async def main():
        async with Bench(config(device={"backend": "vulkan"})).open(), Bench(config()).open():
            claims = [entry.claim for entry in registry.entries()]
            assert {claim.backend for claim in claims} == {"reference", "vulkan"}
            assert len({claim.device for claim in claims}) == (1 if device_info().kind == "cpu" else 2)

    run(main)
