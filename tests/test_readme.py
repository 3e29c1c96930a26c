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
from coresident.policies.catalog import CATALOG
from coresident.runtime.config import load_config

from coresident import load_request
from support.backends import needs
from support.signed import signer
from support.tiny_models import write_gguf
from support.tree import ROOT

README, TRUST, _, VULKAN, POLICY = re.split(
    r"^## (?:Trust and recovery|On a Mac|On any GPU|Write your own policy)\n",
    (ROOT / "README.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)


def blocks(language: str, text: str = README) -> list[str]:
    """Fenced blocks of one language, in order; of the README up to its section on trust, or of another text."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(command: list[str], folder: Path, **more: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "CORESIDENT_MODEL"} | more
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
    program, *_ = blocks("python")
    (folder / "example.py").write_text(program, encoding="utf-8")
    printed = run([sys.executable, "example.py"], folder)
    assert printed.startswith("completed (0.")
    assert (folder / "run.jsonl").stat().st_size > 0


def test_the_preparation_example_reuses_what_was_prepared(folder: Path) -> None:
    _, _, program, _ = blocks("python")
    (folder / "preparation.py").write_text(program, encoding="utf-8")
    outcome, reuse, saved = run([sys.executable, "preparation.py"], folder).splitlines()
    assert outcome == "prepared"
    assert int(reuse.split()[0]) >= 512
    assert saved.startswith("Checkpoint(tokens=")
    assert (folder / "harbour.safetensors").stat().st_size > 0


def test_the_channels_example_runs_and_leaves_its_request(folder: Path) -> None:
    *_, program = blocks("python")
    (folder / "channels.py").write_text(program, encoding="utf-8")
    assert run([sys.executable, "channels.py"], folder).startswith("length ''")
    assert load_request(folder / "request.json").text == "Tell me about the sea."


def test_the_asyncio_and_blocking_example_runs(folder: Path) -> None:
    _, program, *_ = blocks("python")
    (folder / "doors.py").write_text(program, encoding="utf-8")
    streamed, decided, whole = run([sys.executable, "doors.py"], folder).splitlines()
    assert (decided, streamed) == ("completed", whole)


def test_the_replay_and_simulation_commands_run_on_that_recording(folder: Path) -> None:
    rows = [f"2023-11-16 18:17:{second:02d}.5000000,{100 + second},{5 + second % 7}" for second in range(60)]
    csv = folder / "AzureLLMInferenceTrace_conv.csv"
    csv.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n", encoding="utf-8")
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("coresident ")]
    printed = {command: run([sys.executable, "-m", *shlex.split(command)], folder) for command in commands}
    says = {shlex.split(command)[1]: text for command, text in printed.items()}
    assert set(says) == {"replay", "audit", "show", "import", "report"}
    assert all(json.loads(text) for command, text in printed.items() if "--json" in command)
    assert "as recorded" in says["audit"]
    assert all(word in says["show"] for word in ("decision", "foreground"))
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads((folder / "timeline.json").read_text(encoding="utf-8"))["traceEvents"]


def test_the_policy_example_is_simulated_compared_and_replayed_live(folder: Path) -> None:
    (program,), (lab,), (commands,) = blocks("python", POLICY), blocks("toml", POLICY), blocks("sh", POLICY)
    assert len([line for line in program.splitlines() if line]) <= 20
    (folder / "mine.py").write_text(program, encoding="utf-8")
    (folder / "lab.toml").write_text(lab, encoding="utf-8")
    simulated, compared, live = [
        run([sys.executable, "-m", *shlex.split(line)], folder) for line in commands.splitlines()
    ]
    assert "in virtual time" in simulated
    assert "in real time" in live
    assert all(said in compared for said in ("mine (patience_ms=100)", "mine (patience_ms=1000)", "fair", "3 runs"))


def test_the_policies_listed_are_those_that_ship() -> None:
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|$", POLICY, flags=re.MULTILINE)
    assert {kind: set(re.findall(r"`(\w+)`", names)) for kind, names in rows} == {
        kind: set(names) for kind, names in CATALOG.items()
    }


def test_the_configuration_example_is_one(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "app.toml"
    path.write_text(text, encoding="utf-8")
    config = load_config(path)
    assert config.generation.context == 8192
    assert config.policies.ordering.parameters == {"share": 0.1}


def test_the_recovery_example_runs(folder: Path) -> None:
    (program,) = blocks("python", TRUST)
    assert run([sys.executable, "-c", program], folder) == "completed\nTrue\n"


def test_the_store_example_signs_a_model_that_a_worker_process_serves(tmp_path: Path) -> None:
    signer()
    (tmp_path / "models").mkdir()
    write_gguf(tmp_path / "models" / "sea.gguf", "llama", tokenizer=True)
    home = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    (commands,), (config,) = blocks("sh", TRUST), blocks("toml", TRUST)
    said = [run([sys.executable, "-m", *shlex.split(line)], tmp_path, **home) for line in commands.splitlines()]
    assert "sea" in said[-2]
    # The tiny model knows no whole word of a verbalizer: it decides nothing.
    (tmp_path / "app.toml").write_text("decision = false\n" + config, encoding="utf-8")
    program = (
        "import trio, coresident\n"
        "async def main():\n"
        "    async with coresident.open_scheduler('app.toml') as scheduler:\n"
        "        answer = await scheduler.generate('sea', max_tokens=3)\n"
        "        print(answer.outcome, scheduler.statistics().executor.kind)\n"
        "trio.run(main)\n"
    )
    assert run([sys.executable, "-c", program], tmp_path, **home) == "completed process\n"


def test_the_vulkan_example_is_warmed_and_checked(tmp_path: Path) -> None:
    needs("vulkan")
    (config,), (commands,) = blocks("toml", VULKAN), blocks("sh", VULKAN)
    (tmp_path / "gpu.toml").write_text(config, encoding="utf-8")
    places = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = [run([sys.executable, "-m", *shlex.split(line)], tmp_path, **places) for line in commands.splitlines()]
    devices, warmed, checked = said
    assert "Vulkan devices" in devices
    assert str(tmp_path / "cache" / "coresident" / "vulkan") in warmed
    assert "checks passed" in checked


def test_the_two_commands_are_the_makefile_s() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {word for block in blocks("sh") for word in re.findall(r"^make ([\w-]+)", block, flags=re.MULTILINE)}
    assert named == {"demo", "test"}
    assert named <= targets
