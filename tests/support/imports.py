"""Which imports break the one-way rule, found by walking a module's syntax tree.

Rooms may import themselves and the rooms before them; inside the package imports are relative, so that a room
never depends on the name it is installed under. The pure rooms take nothing but the standard library's data
tools, attrs and NumPy: a clock, a source of randomness, a file or a task there would make two runs of one
input differ.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

from .tree import FRONT, ROOMS, package_of

PURE_ROOMS = frozenset({"policies", "actors"})
PURE_THIRD_PARTY = frozenset({"attr", "attrs", "numpy"})
# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "queue", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time",
    "trio", "urllib", "uuid",
})
# fmt: on
IMPURE_CALLS = frozenset({"open", "print", "input", "__import__"})


def violations(path: PurePosixPath, source: str, declared: frozenset[str]) -> list[str]:
    """What is wrong with the module at ``path``; ``declared`` are the third-party modules it may import."""
    tree = ast.parse(source)
    room = path.parts[0]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for target in _targets(node, path):
                reason = _refusal(target, room, declared)
                if reason:
                    found.append(f"{path}:{node.lineno}: {reason}")
        elif room in PURE_ROOMS and (impure := _impure_use(node)):
            found.append(f"{path}:{node.lineno}: {impure} in a pure room")
    return found


def _targets(node: ast.Import | ast.ImportFrom, path: PurePosixPath) -> Iterator[str]:
    """The imported names in absolute form; a leading dot marks what was written relatively."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    else:
        package = package_of(path.parent).split(".")
        base = package[: len(package) - node.level + 1] + ([node.module] if node.module else [])
        yield from ("." + ".".join([*base, alias.name]) for alias in node.names)


def _refusal(target: str, room: str, declared: frozenset[str]) -> str | None:
    if target.startswith("."):
        return _relative_refusal(target[1:].split("."), room)
    top = target.split(".")[0]
    if top in ROOMS:
        return f"imports {target} by its absolute name"
    if top not in sys.stdlib_module_names and top not in declared:
        return f"imports {top}, which pyproject.toml does not declare"
    if room in PURE_ROOMS:
        pure = top in PURE_THIRD_PARTY or (top in sys.stdlib_module_names and top not in IMPURE)
        if not pure or target.startswith("numpy.random"):
            return f"imports {target} in a pure room"
    return None


def _relative_refusal(parts: list[str], room: str) -> str | None:
    if parts[0] != FRONT:
        return "imports from outside the package"
    target = parts[1] if len(parts) > 1 and parts[1] in ROOMS else FRONT
    if ROOMS.index(target) > ROOMS.index(room):
        return f"{room} imports {target}, which comes after it"
    return None


def _impure_use(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
        return f"calls {node.func.id}()"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return "uses numpy.random" if (node.value.id in {"np", "numpy"} and node.attr == "random") else None
    return None
