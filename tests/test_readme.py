"""The README's examples are run as they stand: a promise there has a test here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from coresident.runtime.config import load_config

from coresident import load_request
from support.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Fenced blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "CORESIDENT_MODEL"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README's reader works: the first example leaves its recording here."""
    return tmp_path_factory.mktemp("readme")


def test_the_embedding_example_runs_and_records(folder: Path) -> None:
    program, _, _ = blocks("python")
    (folder / "example.py").write_text(program, encoding="utf-8")
    printed = run([sys.executable, "example.py"], folder)
    assert printed.startswith("completed (0.")
    assert (folder / "run.jsonl").stat().st_size > 0


def test_the_preparation_example_reuses_what_was_prepared(folder: Path) -> None:
    _, program, _ = blocks("python")
    (folder / "preparation.py").write_text(program, encoding="utf-8")
    outcome, reuse, saved = run([sys.executable, "preparation.py"], folder).splitlines()
    assert outcome == "prepared"
    assert int(reuse.split()[0]) >= 512
    assert saved.startswith("Checkpoint(tokens=")
    assert (folder / "harbour.safetensors").stat().st_size > 0


def test_the_channels_example_runs_and_leaves_its_request(folder: Path) -> None:
    _, _, program = blocks("python")
    (folder / "channels.py").write_text(program, encoding="utf-8")
    assert run([sys.executable, "channels.py"], folder).startswith("length ''")
    assert load_request(folder / "request.json").text == "Tell me about the sea."


def test_the_replay_and_simulation_commands_run_on_that_recording(folder: Path) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("coresident ")]
    assert len(commands) == 3
    for command in commands:
        printed = run([sys.executable, "-m", *shlex.split(command)], folder)
        if "--json" in command:
            assert json.loads(printed)
        else:
            assert "decision" in printed
            assert "foreground" in printed


def test_the_configuration_example_is_one(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "app.toml"
    path.write_text(text, encoding="utf-8")
    config = load_config(path)
    assert config.generation.context == 8192
    assert config.policies.ordering.parameters == {"share": 0.1}


def test_the_two_commands_are_the_makefile_s() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {word for block in blocks("sh") for word in re.findall(r"^make ([\w-]+)", block, flags=re.MULTILINE)}
    assert named == {"demo", "test"}
    assert named <= targets
