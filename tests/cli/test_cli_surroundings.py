"""The environment's model, closed standard streams, and limits of what is asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.commands import WAIT_S
from support.tiny_models import write_gguf


@pytest.mark.parametrize("command", ["plan", "demo", "chat"])
def test_a_model_of_the_environment_that_is_not_there_is_refused(
    cli: Callable, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("CORESIDENT_MODEL", "nonsense")
    done = cli(command)
    assert (done.code, done.out) == (2, "")
    assert "model 'nonsense': there is no such file or folder" in done.err
    assert cli("plan", "--model", "synthetic").code == 0


def test_a_model_with_less_context_than_the_demos_default_gets_its_own(
    cli: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CORESIDENT_MODEL", str(write_gguf(tmp_path / "tiny.gguf", "llama", tokenizer=True)))
    done = cli("demo", "--tokens", 4)
    assert done.code == 3
    assert "the admitted context of 256 tokens" in done.err


def test_devices_looks_into_the_model_that_the_environment_names(
    cli: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_text("not a model")
    monkeypatch.setenv("CORESIDENT_MODEL", str(broken))
    models = {model["name"]: model for model in cli("devices", "--json").json()["models"]}
    assert models[str(broken)]["available"] is False
    assert "broken.gguf" in models[str(broken)]["note"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["devices", "chat", "demo", "--help"])
def test_closed_standard_streams_are_no_terminal(small: Path, closed: str, command: str) -> None:
    options = {"chat": f"--config {small}", "demo": f"--config {small} --tokens 4 --no-check"}.get(command, "")
    line = f"{sys.executable} -m coresident {command} {options} {closed}"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(["sh", "-c", line], check=False, timeout=WAIT_S, **quiet)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("asked", [65_537, 999_999_999])
def test_a_context_above_the_models_own_is_refused(cli: Callable, small: Path, tmp_path: Path, asked: int) -> None:
    large = tmp_path / "large.toml"
    large.write_text(small.read_text().replace("2048", str(asked)))
    for command in ("plan", "demo", "chat"):
        done = cli(command, "--config", large)
        assert (done.code, done.out) == (2, "")
        for words in (f"generation.context is {asked}", "65536 tokens", "synthetic checkpoint"):
            assert words in done.err


def test_the_models_own_context_may_be_asked_for(cli: Callable, small: Path) -> None:
    plan = cli("plan", "--config", small, "--context", 65_536, "--partition", "1 TiB", "--json").json()
    assert plan["context"]["admitted"] == 65_536
    assert plan["partition"] == 1024**4


def test_a_partition_of_nearly_nothing_is_told_in_multiples(cli: Callable, small: Path) -> None:
    done = cli("plan", "--config", small, "--partition", 1)
    assert done.code == 3
    assert "%" not in next(line for line in done.out.splitlines() if line.startswith("total"))
    assert " times" in done.out


def test_the_refusal_and_the_missing_bytes_agree(cli: Callable, small: Path) -> None:
    plan = cli("plan", "--config", small, "--partition", "4 MiB", "--json").json()
    assert f"{plan['missing']} are missing" in plan["refusal"]


def test_the_modelled_device_takes_no_model_in_a_replay(cli: Callable, small: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    assert cli("demo", "--config", small, "--tokens", 4, "--no-check", "--record", trace).code == 0
    done = cli("replay", trace, "--backend", "modelled", "--model", "synthetic")
    assert done.code == 2
    assert "leave the model out" in done.err
    assert "'device.model' in a configuration or a lab file" in done.err
