"""Make a folder of symlinks in which ``coresident`` looks as it does when installed, for type checkers.

They can't follow the hook of an editable install, which maps the folders at the root to subpackages.
``python tests/tools/make_view.py VIEW`` fills VIEW with ``coresident``, laid out as pyproject.toml has it, and,
with the programs in ``examples`` and, as ``user_programs``, in ``tests/typing``.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make_view(view: Path) -> None:
    """Replace ``view`` by a fresh one; refuses a folder that this tool did not make."""
    if view.exists():
        if any(entry.name not in {"coresident", "examples", "user_programs"} for entry in view.iterdir()):
            sys.exit(f"{view} holds something else than a view; name another folder")
        shutil.rmtree(view)
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["setuptools"]
    front = view / "coresident"
    front.mkdir(parents=True)
    for package, folder in settings["package-dir"].items():
        if package == "coresident":
            for entry in (ROOT / folder).iterdir():
                (front / entry.name).symlink_to(entry)
        else:
            (view / package.replace(".", "/")).symlink_to(ROOT / folder, target_is_directory=True)
    (view / "user_programs").symlink_to(ROOT / "tests" / "typing", target_is_directory=True)
    (view / "examples").symlink_to(ROOT / "examples", target_is_directory=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/tools/make_view.py VIEW")
    make_view(Path(sys.argv[1]))
