"""Policies that misbehave and recordings that fail: said where a person looks, and in the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.commands import WAIT_S

OWN = """
import sys
from coresident.policies.views import Choice

def raising():
    def decide(view, memory):
        raise RuntimeError("no idea")
    return decide

def leaving():
    return lambda view, memory: sys.exit("had enough")

def first():
    return lambda view, memory: (Choice((view.running or view.waiting[0]).step), memory)

def decide(view, memory):
    return Choice(view.waiting[0].step), memory
"""
DEMO = ("--tokens", 30, "--every", 0.02, "--no-check")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_policies", None)


@pytest.mark.parametrize(("policy", "reason"), [("raising", "no idea"), ("leaving", "had enough")])
def test_a_demo_says_that_its_policy_was_replaced(
    cli: Callable, small: Path, own: None, policy: str, reason: str
) -> None:
    name = f"own_policies:{policy}"
    done = cli("demo", "--config", small, *DEMO, "--policy", name)
    warning = json.loads(done.err.splitlines()[0])
    assert done.code == 0
    assert (warning["event"], warning["level"], warning["policy"]) == ("policy.fault", "warning", "ordering")
    assert reason in warning["error"]
    line = next(line for line in done.out.splitlines() if line.startswith("Policy: "))
    assert f"ordering {name} faulted once; first: " in line
    assert reason in line
    assert "fifo stood in" in line


def test_a_demo_whose_policy_behaves_says_nothing_of_it(cli: Callable, small: Path, own: None) -> None:
    done = cli("demo", "--config", small, *DEMO, "--policy", "own_policies:first", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json()["policy_faults"] == {}


def test_json_has_the_faults(cli: Callable, small: Path, own: None) -> None:
    faults = cli("demo", "--config", small, *DEMO, "--policy", "own_policies:raising", "--json").json()["policy_faults"]
    assert set(faults) == {"ordering"}
    assert "no idea" in faults["ordering"][0]


def test_a_replay_whose_policy_was_replaced_ends_with_1(cli: Callable, small: Path, own: None, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    assert cli("demo", "--config", small, *DEMO, "--record", trace).code == 0
    assert cli("replay", trace, "--policy", "own_policies:first").code == 0
    done = cli("replay", trace, "--policy", "own_policies:raising")
    assert done.code == 1
    assert "policy.fault" in done.err
    assert "Policy: ordering faulted once; first: ordering raised RuntimeError('no idea')" in done.out
    body = cli("replay", trace, "--policy", "own_policies:raising", "--json")
    assert body.code == 1
    assert list(body.json()["policy_faults"]) == ["ordering"]


def test_chat_says_it_in_its_statistics_and_at_the_end(started: Callable, small: Path, tmp_path: Path) -> None:
    (tmp_path / "own_policies.py").write_text(OWN)
    config = tmp_path / "own.toml"
    config.write_text(small.read_text() + '[policies]\nquantum = "own_policies:raising"\n')
    process = started("chat", "--config", config, "--tokens", 4, cwd=tmp_path)
    out, err = process.communicate(b"hello\n/stats\n", timeout=WAIT_S)
    assert process.returncode == 0
    assert out.decode().count("Policy: quantum own_policies:raising faulted once") == 2
    assert b"policy.fault" in err


def test_a_policy_of_the_current_folder_is_found_by_the_console_script(small: Path, tmp_path: Path) -> None:
    (tmp_path / "own_policies.py").write_text(OWN)
    script = Path(sys.executable).with_name("coresident")
    if not script.exists():
        pytest.skip("the console script is not installed beside this Python")
    command = [script, "plan", "--config", small, "--policy", "own_policies:first"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ("no-such", "no-such"),
        ("own_policies:decide", "name a factory, a function without arguments that returns decide(view, memory)"),
    ],
)
def test_plan_looks_at_the_policies(cli: Callable, small: Path, own: None, policy: str, named: str) -> None:
    done = cli("plan", "--config", small, "--policy", policy)
    assert done.code == 2
    assert named in done.err


@pytest.mark.parametrize("command", ["demo", "chat", "replay"])
def test_a_recording_that_fails_is_an_error_that_names_file_and_reason(
    cli: Callable, small: Path, tmp_path: Path, command: str
) -> None:
    """The limit of the shell stands for a disk that is full."""
    before, trace = tmp_path / "before.jsonl", tmp_path / "cut.jsonl"
    arguments = {
        "demo": f"demo --config {small} --tokens 400 --every 0.02 --no-check",
        "chat": f"chat --config {small} --tokens 400",
        "replay": f"replay {before}",
    }
    if command == "replay":
        assert (
            cli("demo", "--config", small, "--tokens", 400, "--every", 0.02, "--no-check", "--record", before).code == 0
        )
    line = f"ulimit -f 8; exec {sys.executable} -m coresident {arguments[command]} --record {trace}"
    talk = b"hello\n" * 12 if command == "chat" else b""
    done = subprocess.run(["sh", "-c", line], input=talk, capture_output=True, check=False, timeout=WAIT_S)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert b"File too large" in said
    assert b"Recorded to" not in said
    assert b"Traceback" not in said
    if command != "replay":
        last = done.stderr.decode().splitlines()[-1]
        assert last.startswith(f"coresident: the trace {trace} is not whole: File too large")
