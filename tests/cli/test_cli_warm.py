"""``coresident warm``: what one process compiled, later ones find; a file that is of no use costs nothing else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from coresident.runtime.backends.vulkan import pipeline_cache
from coresident.runtime.config import Config, DeviceConfig

from coresident.cli.here import computing_here
from support.commands import WAIT_S
from support.vulkan_here import cpu_driver, found, needs_vulkan, without_drivers

TOML = """
[device]
backend = "vulkan"
partition = "256 MiB"
workspace = "64 MiB"
[generation]
model = "synthetic"
context = 512
sequences = 2
retained = "4 MiB"
"""
USE = """
from coresident import blocking
with blocking.open_scheduler("app.toml") as scheduler:
    print(scheduler.generate("Tell me about the sea.", max_tokens=20).whole().text)
    print(scheduler.decide("Is this urgent?", ["The house is on fire!", "No."]).outcome)
"""
SEEN = """
import os, pathlib
maps = pathlib.Path("/proc/self/maps")
print(os.environ["VK_DRIVER_FILES"], maps.exists() and "libvulkan" in maps.read_text())
"""
COMPILERS = ("glslang", "glslangValidator", "glslc", "spirv-as", "spirv-opt")


@attrs.frozen
class Machine:
    """A folder with a configuration, caches, and compilers of shaders that leave a mark; ``first`` is what was said."""

    folder: Path
    first: dict

    def surround(self, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("PATH", str(self.folder / "bin"), prepend=os.pathsep)
        patch.setenv("XDG_CACHE_HOME", str(self.folder / "cache"))
        patch.setenv("MESA_SHADER_CACHE_DIR", str(self.folder / "mesa"))
        patch.delenv("MESA_SHADER_CACHE_DISABLE", raising=False)


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine where nothing had been compiled before ``coresident warm`` ran once."""
    needs_vulkan()
    folder = tmp_path_factory.mktemp("warmed")
    for name in ("bin", "cache", "mesa"):
        (folder / name).mkdir()
    for name in COMPILERS:
        (folder / "bin" / name).write_text(f"#!/bin/sh\ntouch {folder}/compiler-was-run\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "app.toml").write_text(TOML)
    with pytest.MonkeyPatch.context() as patch:
        Machine(folder, {}).surround(patch)
        return Machine(folder, warm(folder))


@pytest.fixture
def folder(warmed: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of the test's own after that."""
    for name in ("bin", "cache", "mesa"):
        shutil.copytree(warmed.folder / name, tmp_path / name)
    (tmp_path / "app.toml").write_text(TOML)
    Machine(tmp_path, warmed.first).surround(monkeypatch)
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def warm(folder: Path) -> dict:
    return json.loads(run(folder, "-m", "coresident", "warm", "--config", "app.toml", "--json"))


def compiled_by_the_driver(folder: Path) -> set[str]:
    """Files of a driver that compiles when a kernel first runs, and keeps the result itself, as Mesa's does."""
    return {str(path) for path in (folder / "mesa").rglob("*") if path.is_file()}


def test_R69_a_second_process_compiles_nothing(warmed: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed.surround(monkeypatch)
    folder, first = warmed.folder, warmed.first
    assert first["pipelines"] > 0
    assert not first["found"]
    assert Path(first["file"]).stat().st_size == first["bytes"] > 0
    assert Path(first["file"]).is_relative_to(folder / "cache" / "coresident" / "vulkan")
    kept = compiled_by_the_driver(folder)
    *_, outcome = run(folder, "-c", USE).splitlines()
    assert outcome == "completed"
    again = warm(folder)
    assert compiled_by_the_driver(folder) == kept
    assert (again["pipelines"], again["file"]) == (first["pipelines"], first["file"])
    if found().chosen.kind == "cpu":
        # Mesa's CPU driver keeps what it compiled in files of its own, one a kernel, and nothing in the pipeline cache.
        assert len(kept - {path for path in kept if path.endswith("index")}) == first["pipelines"]
    elif again["found"] is not None:
        assert again["found"] == again["pipelines"]
    assert not (folder / "compiler-was-run").exists()


def test_people_are_told_what_was_made_and_where_it_is(cli: Callable, folder: Path) -> None:
    done = cli("warm", "--config", folder / "app.toml")
    (file,) = (folder / "cache").rglob("*.bin")
    said = " ".join(done.out.split())
    assert done.code == 0
    for words in (found().chosen.name, "pipelines are ready", "keeps what it compiles in a cache", file.name):
        assert words in said


def test_R69_a_damaged_file_is_ignored_with_a_warning_and_written_anew(cli: Callable, folder: Path) -> None:
    (file,) = (folder / "cache").rglob("*.bin")
    whole = file.read_bytes()
    for damaged in (whole[:50], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        done = cli("warm", "--config", folder / "app.toml")
        assert done.code == 0
        assert "pipeline_cache.ignored" in done.err
        assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_said(cli: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))
    done = cli("warm", "--config", folder / "app.toml", "--json")
    assert (done.code, done.out) == (2, "")
    error = json.loads(done.err.splitlines()[-1])
    assert error["error"] == "InvalidRequest"
    assert "cannot be written" in error["message"]
    assert (folder / "file").read_text() == "no folder"


def test_a_full_disk_leaves_what_was_there(cli: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in (folder / "cache").rglob("*.*")}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pipeline_cache.os, "fsync", full)
    done = cli("warm", "--config", folder / "app.toml")
    assert done.code == 2
    assert "No space left on device; make room, or set XDG_CACHE_HOME" in done.err
    assert {path: path.read_bytes() for path in (folder / "cache").rglob("*.*")} == before


def test_R63_a_program_whose_worker_alone_has_a_driver_loads_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = cpu_driver()
    without_drivers(folder, monkeypatch)
    versions = ", ".join(f'{name} = "{value}"' for name, value in driver.versions.items())
    worker = f'executor = "process"\ndriver = {{ manifest = "{driver.manifest}", versions = {{ {versions} }} }}'
    (folder / "app.toml").write_text(TOML.replace("[device]", f"[device]\n{worker}"))
    *_, outcome, seen = run(folder, "-c", USE + SEEN).splitlines()
    assert (outcome, seen) == ("completed", f"{os.environ['VK_DRIVER_FILES']} False")


def test_R63_a_command_that_computes_itself_has_the_workers_driver_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = cpu_driver()
    monkeypatch.setenv("VK_DRIVER_FILES", "/first.json")
    before = dict(os.environ)
    outside = Config(device=DeviceConfig("vulkan", executor="process", driver=driver))
    with computing_here(outside) as inside:
        first, added = os.environ["VK_DRIVER_FILES"].split(os.pathsep)
        assert (first, Path(added).name) == ("/first.json", Path(driver.manifest).name)
        assert json.loads(Path(added).read_text())["ICD"]["library_path"]
        assert (inside.device.executor, inside.device.driver.manifest) == ("thread", "")
    assert dict(os.environ) == before
    assert not Path(added).exists()


def test_what_other_backends_have_is_not_compiled_ahead(cli: Callable) -> None:
    done = cli("warm", "--backend", "reference")
    assert (done.code, done.out) == (2, "")
    assert "'reference', which has nothing to compile ahead: only 'vulkan' has" in done.err
