"""``demo``, ``chat`` and ``replay`` on the synthetic checkpoint, to their ends and interrupted."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path

import pytest
from rich.console import Console

from coresident.cli.demo_screen import DemoScreen
from support.commands import WAIT_S, read_until

DEMO = ("--tokens", 200, "--every", 0.02)


def test_the_demo_ends_by_itself_and_says_what_it_measured(cli: Callable, small: Path) -> None:
    done = cli("demo", "--config", small, *DEMO, "--json")
    run = done.json()
    assert done.code == 0
    assert "synthetic" in run["model"]
    assert len(run["answer"]["tokens"]) == 200
    assert run["equals_solo_run"] is True
    assert run["decisions"]
    assert all(decision["segments_waited"] <= 1 for decision in run["decisions"])
    assert {decision["outcome"] for decision in run["decisions"]} == {"completed"}


def test_the_demo_in_a_pipe_is_plain_lines(cli: Callable, small: Path) -> None:
    done = cli("demo", "--config", small, *DEMO, "--no-check")
    assert done.code == 0
    assert "\x1b" not in done.out
    for words in ("synthetic checkpoint", "answer: ", "decision d", "Not compared", "untrained", "at most one segment"):
        assert words in done.out


def test_the_demo_claims_nothing_about_decisions_it_did_not_make(cli: Callable, small: Path) -> None:
    done = cli("demo", "--config", small, "--tokens", 1, "--every", 1000)
    assert done.code == 0
    assert "No decision was answered" in done.out


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (80, 50), (120, 40), (100, 24)])
def test_the_live_screen_fits_the_terminal(cli: Callable, small: Path, columns: int, rows: int) -> None:
    """Drawn from a run that has everything: a long answer, decisions, statistics."""
    from coresident.cli import demo

    runs = []
    keep = demo.summarize
    try:
        demo.summarize = lambda run, *_: runs.append(run)
        assert cli("demo", "--config", small, *DEMO, "--no-check").code == 0
    finally:
        demo.summarize = keep
    console = Console(width=columns, height=rows, force_terminal=True, file=io.StringIO())
    with console.capture() as capture:
        console.print(DemoScreen(runs[0]))
    lines = capture.get().splitlines()
    assert len(lines) < rows
    for words in ("who has the device", "memory", "decisions", "answer", "workspace"):
        assert any(words in line for line in lines)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_live_demo_restores_the_terminal(endless: Path, interrupted: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    tokens = "50000" if interrupted else "20"
    command = [sys.executable, "-m", "coresident", "demo", "--config", endless, "--tokens", tokens, "--no-check"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 65536):
            seen += block
            if interrupted and b"streaming" in seen:
                process.send_signal(signal.SIGINT)
                interrupted = False
    except OSError:
        pass  # Linux reports the closed other end as an error.
    finally:
        os.close(ours)
    assert process.wait(WAIT_S) == (130 if tokens == "50000" else 0)
    assert b"who has the device" in seen
    assert b"Traceback" not in seen
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l")


def test_ctrl_c_ends_the_demo_with_130_and_no_traceback(started: Callable, endless: Path) -> None:
    process = started("demo", "--config", endless, "--tokens", 50000, "--every", 0.05, "--plain")
    read_until(process, b"answer: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert b"Traceback" not in out + err


def test_a_reader_that_goes_away_ends_the_demo_quietly(started: Callable, endless: Path) -> None:
    process = started("demo", "--config", endless, "--tokens", 50000, "--every", 0.05, "--plain")
    read_until(process, b"answer: ")
    process.stdout.close()
    assert process.wait(WAIT_S) == 141
    assert process.stderr.read() == b""


def test_chat_reads_lines_from_a_pipe_and_reuses_the_history(started: Callable, small: Path) -> None:
    process = started("chat", "--config", small, "--tokens", 8)
    out, err = process.communicate(b"first\nsecond\n/stats\n/new\nthird\n/quit\nnever\n", timeout=WAIT_S)
    text = out.decode()
    assert (process.returncode, err) == (0, b"")
    turns = [line for line in text.splitlines() if "prompt tokens reused" in line]
    reused = [int(line.split("; ")[1].split(" of ")[0]) for line in turns]
    assert len(turns) == 3
    assert reused[0] == 0
    assert reused[1] > len("first")
    assert reused[2] < reused[1]
    assert "grants" in text
    assert "never" not in text
    assert text.count("asks for something") == 3


def test_chat_refuses_a_message_that_does_not_fit_and_goes_on(started: Callable, small: Path) -> None:
    process = started("chat", "--config", small, "--tokens", 4)
    out, _ = process.communicate(b"x" * 3000 + b"\nshort\n", timeout=WAIT_S)
    text = out.decode()
    assert process.returncode == 0
    assert text.count("not answered") == 1
    assert text.count("prompt tokens reused") == 1


def test_ctrl_c_in_chat_stops_the_answer_only(started: Callable, endless: Path) -> None:
    process = started("chat", "--config", endless, "--tokens", 50000)
    process.stdin.write(b"tell me everything\n")
    process.stdin.flush()
    read_until(process, b"decided in ")
    read_until(process, b"\n")
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    read_until(process, b"stopped by you")
    out, err = process.communicate(b"/stats\n", timeout=WAIT_S)
    assert (process.returncode, err) == (0, b"")
    assert b"grants" in out


def test_a_recorded_demo_replays_with_the_same_outcomes(cli: Callable, small: Path, tmp_path: Path) -> None:
    trace, again = tmp_path / "run.jsonl", tmp_path / "again.jsonl"
    assert cli("demo", "--config", small, *DEMO, "--no-check", "--record", trace).code == 0
    done = cli("replay", trace, "--json", "--record", again)
    report = done.json()
    assert done.code == 0
    assert report["comparison"]["same"] is True
    assert {"decision", "foreground"} <= set(report["statistics"]["classes"])
    shown = cli("replay", again, "--policy", "fifo")
    assert shown.code == 0
    for words in ("queue wait", "time to first token", "real time", "Ledger", "Drift", "ended as recorded"):
        assert words in shown.out


def test_a_replay_on_a_modelled_device_runs_in_virtual_time(cli: Callable, small: Path, tmp_path: Path) -> None:
    roomy = tmp_path / "roomy.toml"
    roomy.write_text(small.read_text().replace("64 MiB", "1 GiB").replace("8 MiB", "64 MiB"))
    trace = tmp_path / "run.jsonl"
    assert cli("demo", "--config", roomy, *DEMO, "--no-check", "--record", trace).code == 0
    shown = cli("replay", trace, "--backend", "modelled")
    assert shown.code == 0
    assert "virtual time" in shown.out
    assert "Note: " in shown.out


def test_a_trace_that_is_cut_or_a_policy_unknown_is_refused(cli: Callable, small: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    assert cli("demo", "--config", small, *DEMO, "--no-check", "--record", trace).code == 0
    lines = trace.read_text().splitlines()
    assert cli("replay", trace, "--policy", "no-such").code == 2
    cut = tmp_path / "cut.jsonl"
    cut.write_text("\n".join(lines[:-1]) + "\n")
    refused = cli("replay", cut, "--json")
    assert refused.code == 2
    assert json.loads(refused.err)["error"] == "TraceInvalid"


def test_a_replay_that_comes_out_otherwise_ends_with_1(cli: Callable, small: Path, tmp_path: Path) -> None:
    """The recording is made to claim another outcome of one decision, checksum included."""
    trace = tmp_path / "run.jsonl"
    assert cli("demo", "--config", small, *DEMO, "--no-check", "--record", trace).code == 0
    lines = trace.read_bytes().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if b'"end.decision"' in line)
    lines[place] = lines[place].replace(b'"completed","reason":""', b'"abstained","reason":"deadline"')
    end = json.loads(lines[-1]) | {"sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    trace.write_bytes(b"".join(lines[:-1]) + json.dumps(end, separators=(",", ":")).encode() + b"\n")
    done = cli("replay", trace)
    assert done.code == 1
    assert "1 of " in done.out
    assert "abstained (deadline), now completed" in done.out


def test_a_foreign_trace_is_refused_by_name(cli: Callable, tmp_path: Path) -> None:
    foreign = tmp_path / "azure.csv"
    foreign.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    done = cli("replay", foreign)
    assert done.code == 2
    assert "Azure" in done.err


@pytest.mark.parametrize("backend", ["modelled", "reference"])
def test_ctrl_c_again_ends_a_policy_that_never_comes_back(started: Callable, tmp_path: Path, backend: str) -> None:
    sample = resources.files("coresident.traces").joinpath("samples/chat.jsonl")
    loop = "def forever():\n    def choose(view, memory):\n        print('asked', flush=True)\n"
    (tmp_path / "pol.py").write_text(f"{loop}        while True:\n            pass\n    return choose\n")
    process = started("replay", sample, "--backend", backend, "--policy", "pol:forever", cwd=tmp_path)
    read_until(process, b"asked")
    for _ in range(50):  # Signals that come too close together are one.
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            break
    assert process.wait(WAIT_S) == 130
    assert b"Traceback" not in process.stderr.read()
