"""What the command line's tests share: runs in this process and in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from coresident.cli.app import app
from support.commands import ENDLESS, SMALL, Ended


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Commands configure logging for the whole process; the next test begins without."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORESIDENT_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def cli() -> Callable[..., Ended]:
    """Run a command in this process."""

    def call(*arguments: object) -> Ended:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return Ended(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A configuration on the synthetic checkpoint that takes little memory."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A configuration with room for an answer that takes much longer than any test waits."""
    path = tmp_path / "endless.toml"
    path.write_text(ENDLESS)
    return path


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a command in a process of its own, with pipes; it is gone after the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "coresident", *(str(argument) for argument in arguments)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=cwd))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
