"""What a wheel holds and whether it works alone: built from a copy of the checkout, without network."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from support import tree

NOT_SHIPPED = {".md"}


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """The output of a command run in ``cwd``; a failure shows everything it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if path is not None:
        environ["PYTHONPATH"] = str(path)
    arguments = [str(part) for part in command]
    done = subprocess.run(arguments, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, target: Path, kind: str) -> Path:
    """Build a wheel or an sdist with the tools of the ``test`` extra."""
    tool = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation"]
    run(*tool, "--outdir", target, source, cwd=target.parent)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    tree.copy_rooms(folder / "source")
    return build(folder / "source", folder / "dist", "wheel")


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's contents as pip installs them, without its dependencies."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    run(*pip, "--no-compile", "--target", target, wheel, cwd=target)
    return target


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def shipped() -> set[str]:
    """Where each file of the rooms belongs in the wheel."""
    paths = [path for path in tree.files() if path.parts[0] in tree.ROOMS and path.suffix not in NOT_SHIPPED]
    return {str(path if path.parts[0] == tree.FRONT else PurePosixPath(tree.FRONT) / path) for path in paths}


def test_every_folder_with_code_is_a_declared_package() -> None:
    folders = {path.parent for path in tree.sources(*tree.ROOMS)}
    bare = [str(folder) for folder in sorted(folders) if not (tree.ROOT / folder / "__init__.py").is_file()]
    assert bare == []
    declared = tree.pyproject()["tool"]["setuptools"]["packages"]
    assert sorted(map(tree.package_of, folders)) == sorted(declared)


def test_the_wheel_installs_one_package_and_no_tests(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in contents(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {tree.FRONT}
    parts = {part for name in contents(wheel) for part in name.split("/")}
    assert [part for part in sorted(parts) if part.startswith(("test_", "tests", "conftest"))] == []


def test_the_wheel_holds_every_file_of_the_rooms(wheel: Path) -> None:
    inside = {name for name in contents(wheel) if name.startswith(f"{tree.FRONT}/")}
    assert inside == shipped()
    assert f"{tree.FRONT}/py.typed" in inside


def test_the_wheel_carries_the_licence(wheel: Path) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in contents(wheel))


def test_the_wheel_is_imported_alone_from_another_folder(installed: Path, tmp_path: Path) -> None:
    probe = f"import sys; sys.path[:0] = [{str(installed)!r}]; import coresident; print(coresident.__file__)"
    where = run(sys.executable, "-I", "-c", probe, cwd=tmp_path)
    assert Path(where.strip()) == installed / tree.FRONT / "__init__.py"


def test_every_module_of_the_wheel_is_imported_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    modules = [f"{tree.package_of(path.parent)}.{path.stem}" for path in tree.sources(*tree.ROOMS)]
    names = [name.removesuffix(".__init__") for name in modules]
    probe = (
        f"import sys, importlib; sys.path[:0] = [{str(installed)!r}]\n"
        f"for name in {names!r}: print(importlib.import_module(name).__file__)"
    )
    places = run(sys.executable, "-I", "-c", probe, cwd=tmp_path).splitlines()
    assert len(places) == len(names)
    assert [place for place in places if not Path(place).is_relative_to(installed)] == []


def test_the_command_of_the_wheel_runs(installed: Path, tmp_path: Path) -> None:
    (info,) = installed.glob("*.dist-info")
    points = configparser.ConfigParser()
    points.read(info / "entry_points.txt")
    assert dict(points["console_scripts"]) == {"coresident": "coresident.__main__:main"}
    script = installed / "bin" / "coresident"
    assert "demo" in run(script, "--help", cwd=tmp_path, path=installed)


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    tree.copy_rooms(tmp_path / "source")
    sdist = build(tmp_path / "source", tmp_path / "sdist", "sdist")
    run(sys.executable, "-m", "tarfile", "--extract", sdist, tmp_path / "unpacked", cwd=tmp_path)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = build(unpacked, tmp_path / "again", "wheel")
    assert contents(again) == contents(wheel)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert [name for name in sorted(contents(wheel)) if first.read(name) != second.read(name)] == []
