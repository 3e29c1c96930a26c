"""What a person who waits is told, on stderr: a terminal everything, a log only at level info."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.runtime.config import Config, DeviceConfig, GenerationConfig

from coresident.cli.progress import Progress, loading
from support.commands import WAIT_S


def on_a_terminal(*arguments: object) -> tuple[str, str]:
    """What a command writes to stdout, a pipe, and to stderr, a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "coresident", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, input=b"", check=True, timeout=WAIT_S)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        # All of it fits the terminal's buffer.
        return done.stdout.decode(), terminal.read(1 << 16).decode()


def test_the_doctor_tells_a_terminal_of_each_check_when_it_is_done_and_json_stays_whole() -> None:
    out, told = on_a_terminal("doctor", "--quick", "--json")
    findings = json.loads(out)["findings"]
    assert "loading the synthetic checkpoint and warming it up" in told
    assert told.count("ok: ") == len(findings)
    assert all(finding["what"] in told for finding in findings)


def test_a_probe_says_beforehand_what_it_runs(small: Path) -> None:
    out, told = on_a_terminal("plan", "--config", small, "--context", 300, "--probe", "--json")
    assert "probe" in json.loads(out)
    assert "300 tokens (generation) and 1,024 tokens (decision) in chunks of" in told


def test_chat_says_what_it_loads_and_where(small: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart.toml"
    apart.write_text(small.read_text().replace("[device]", '[device]\nexecutor = "process"'))
    _, told = on_a_terminal("chat", "--config", apart)
    assert "loading the synthetic checkpoint, in a worker process ..." in told
    assert "warming it up" in told


def test_a_log_has_it_at_level_info_only(cli: Callable, small: Path) -> None:
    command = ("demo", "--config", small, "--tokens", 4, "--no-check", "--json")
    assert cli(*command).err == ""
    lines = [json.loads(line) for line in cli("--log-level", "info", *command).err.splitlines()]
    assert [line["doing"] for line in lines if line["event"] == "progress"] == ["loading the synthetic checkpoint ..."]


def test_what_is_loaded_is_named_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(bytes(3 << 20))
    config = Config(DeviceConfig(), GenerationConfig(model=str(tmp_path / "model.gguf")))
    assert loading(config) == "loading model.gguf (3.0 MiB)"


def test_counts_are_told_every_few_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0], []
    progress = Progress(clock=lambda: now[0])
    monkeypatch.setattr(progress, "goes_on", lambda line: said.append(line))
    for second in range(12):
        now[0] = second * 10**9
        progress.counts(str(second))
    assert said == ["5", "10"]
