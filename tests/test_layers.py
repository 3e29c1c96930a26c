"""The shape of the checkout: which way imports go, how large things are, what lies at the root."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import PurePosixPath

import pytest

from support import tree
from support.imports import violations

# fmt: off
HEAVY = (
    "cryptography", "distributed", "gguf", "jinja2", "matplotlib", "mlx", "pyarrow", "safetensors", "tokenizers",
    "vulkan",
)
# fmt: on
IMPORT_NAMES = {"attrs": ("attr", "attrs")}
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
ROOT_FOLDERS = {*tree.ROOMS, ".ci", "benchmarks", "examples", "tests"}
ROOT_FILES = {".gitattributes", ".gitignore", "LICENSE", "Makefile", "README.md", "pyproject.toml"}
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home|tmp/w)/")


def declared() -> frozenset[str]:
    """Import names of everything ``pyproject.toml`` lets the package depend on."""
    project = tree.pyproject()["project"]
    extras = project["optional-dependencies"]
    parts = ("mlx", "vulkan", "lab", "cluster", "plots", "store")
    lines = [*project["dependencies"], *(line for part in parts for line in extras[part])]
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0].replace("-", "_").lower() for line in lines]
    return frozenset(module for name in names for module in IMPORT_NAMES.get(name, (name,)))


def read(path: PurePosixPath) -> str:
    return (tree.ROOT / path).read_text(encoding="utf-8")


def test_imports_go_one_way_and_pure_rooms_stay_pure() -> None:
    modules = tree.sources(*tree.ROOMS)
    assert {path.parts[0] for path in modules} == set(tree.ROOMS)
    allowed = declared()
    assert [line for path in modules for line in violations(path, read(path), allowed)] == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("policies/x.py", "from ..actors import work", "policies imports actors"),
        ("policies/ordering/x.py", "from ...runtime.host import nursery", "policies imports runtime"),
        ("actors/x.py", "from .. import traces", "actors imports traces"),
        ("actors/memory/x.py", "def f():\n    from ...coresident import cli", "actors imports coresident"),
        ("runtime/x.py", "from .. import configuration", "runtime imports coresident"),
        ("traces/x.py", "from ..cli import app", "traces imports coresident"),
        ("coresident/x.py", "from ..actors import work", "outside the package"),
        ("runtime/x.py", "from coresident.actors import work", "absolute name"),
        ("runtime/x.py", "import actors.work", "absolute name"),
        ("runtime/x.py", "import yaml", "does not declare"),
        ("actors/x.py", "import trio", "pure room"),
        ("actors/x.py", "from time import monotonic_ns", "pure room"),
        ("actors/x.py", "import os.path", "pure room"),
        ("policies/x.py", "if TYPE_CHECKING:\n    import random", "pure room"),
        ("policies/x.py", "import structlog", "pure room"),
        ("policies/x.py", "import numpy.random", "pure room"),
        ("policies/x.py", "from numpy import random", "pure room"),
        ("actors/x.py", "import numpy as np\nnp.random.default_rng()", "pure room"),
        ("actors/x.py", "open('state')", "pure room"),
    ],
)
def test_the_import_walker_catches(path: str, source: str, complaint: str) -> None:
    found = violations(PurePosixPath(path), source, declared())
    assert any(complaint in line for line in found), found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("policies/ordering/x.py", "from ..views import WorkClass\nfrom collections.abc import Callable"),
        (
            "actors/memory/x.py",
            "import attrs\nimport numpy as np\nfrom ...policies import views\nfrom ..work import Step",
        ),
        ("runtime/host/x.py", "import time\nimport trio\nfrom ...actors.work import Step"),
        ("traces/x.py", "from ..runtime.host import nursery\nfrom . import format"),
        ("coresident/__init__.py", "from .actors.errors import Closed\nfrom .traces import replay"),
        ("coresident/cli/x.py", "import typer\nfrom .. import configuration\nfrom ..runtime import models"),
    ],
)
def test_the_import_walker_allows(path: str, source: str) -> None:
    assert violations(PurePosixPath(path), source, declared()) == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    probe = f"import sys, coresident; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_files_and_functions_stay_small() -> None:
    large = []
    for path in tree.sources(*ROOT_FOLDERS):
        source = read(path)
        lines = len(source.splitlines())
        if lines > MAX_FILE_LINES:
            large.append(f"{path}: {lines} lines, {MAX_FILE_LINES} allowed")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > MAX_FUNCTION_LINES:
                    large.append(f"{path}: {node.name} has {size} lines, {MAX_FUNCTION_LINES} allowed")
    assert large == []


def test_the_root_holds_the_rooms_and_little_else() -> None:
    paths = tree.files()
    assert {path.parts[0] for path in paths if len(path.parts) > 1} - ROOT_FOLDERS == set()
    assert {path.name for path in paths if len(path.parts) == 1} - ROOT_FILES == set()


def test_no_file_names_a_path_of_one_machine() -> None:
    found = []
    for path in tree.files():
        try:
            text = read(path)
        except UnicodeDecodeError:
            continue
        found += [f"{path}: {match.group()}" for match in MACHINE_PATH.finditer(text)]
    assert found == []
    assert MACHINE_PATH.search("see /" + "home/someone/model.gguf")
