"""The checkout as tests see it: its rooms, its modules, its files."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FRONT = "coresident"
ROOMS = ("policies", "actors", "runtime", "traces", FRONT)
"""The rooms in the order imports may go: each may import itself and those before it."""

BUILT = frozenset({"__pycache__", "build", "dist"})


def pyproject() -> dict[str, Any]:
    """The parsed ``pyproject.toml``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def package_of(folder: PurePosixPath) -> str:
    """What a folder is imported as: ``actors/memory`` is ``coresident.actors.memory``."""
    parts = folder.parts if folder.parts[0] == FRONT else (FRONT, *folder.parts)
    return ".".join(parts)


def files() -> list[PurePosixPath]:
    """Every file that belongs to the checkout, relative to its root: git's view, or all that is not built."""
    listed = _files_of_git()
    names = listed if listed is not None else [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*")]
    paths = sorted(PurePosixPath(name) for name in names if (ROOT / name).is_file())
    return [path for path in paths if listed is not None or not _built(path)]


def sources(*folders: str) -> list[PurePosixPath]:
    """Python files of the named top folders, sorted."""
    return [path for path in files() if path.suffix == ".py" and path.parts[0] in folders]


def copy_rooms(target: Path) -> None:
    """Copy what a build needs to ``target``, so that it leaves nothing behind in the checkout."""
    for path in files():
        if path.parts[0] in ROOMS or path.name in {"pyproject.toml", "README.md", "LICENSE"}:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, target / path)


def _files_of_git() -> list[str] | None:
    """What git tracks or would track; ``None`` outside a work tree of its own or without git."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return None
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.rstrip("\0").split("\0") if done.returncode == 0 else None


def _built(path: PurePosixPath) -> bool:
    folders = path.parts[:-1]
    hidden = any(name.startswith(".") and name != ".ci" for name in folders)
    return hidden or not BUILT.isdisjoint(folders) or any(name.endswith(".egg-info") for name in folders)
