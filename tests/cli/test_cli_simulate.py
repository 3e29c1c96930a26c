"""``coresident simulate`` from a lab file to its table: whole, interrupted, killed, and with runs that fail."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.traces.lab.identity import library
from coresident.traces.writer import TraceWriter

from support.commands import WAIT_S

LAB = """
traces = ["chat", "cancels"]
[policies.strict]
[policies.aging]
ordering = {name = "aging", rate = [1.0, 4.0]}
"""
STUCK = """
traces = ["chat"]
[policies.strict]
[policies.fifo]
ordering = "fifo"
[policies.stuck.ordering]
name = "support.lab_policies:stuck"
pipe = "PIPE"
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.toml"
    path.write_text(LAB)
    return path


def test_a_lab_ends_in_a_table_and_a_comparison(cli: Callable, lab: Path) -> None:
    done = cli("simulate", lab, "--executor", "serial")
    assert done.code == 0
    for words in ("decision, chat on default model", "aging (rate=4.0)", "first token", "6 runs"):
        assert words in done.out
    again = cli("simulate", lab, "--executor", "serial", "--json")
    body = again.json()
    assert (again.code, body["runs"], body["kept"], body["failed"]) == (0, 6, 6, 0)
    lines = list(csv.DictReader(io.StringIO(Path(body["table"]).read_text())))
    assert [line["run"] for line in lines] == [row["run"] for row in body["rows"]]
    assert {line["policy"] for line in lines} == {"strict", "aging (rate=1.0)", "aging (rate=4.0)"}
    assert (lab.parent / "lab-results" / "timing.csv").is_file()


def test_a_dry_run_lists_the_runs_and_does_none(cli: Callable, lab: Path) -> None:
    shown = cli("simulate", lab, "--dry-run")
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "6 runs.")
    assert "chat, aging (rate=1.0), default model, seed 0" in shown.out
    listed = cli("simulate", lab, "--dry-run", "--json").json()["runs"]
    assert [run["policy"] for run in listed[:3]] == ["strict", "aging (rate=1.0)", "aging (rate=4.0)"]
    assert not (lab.parent / "lab-results").exists()


def test_the_example_that_is_printed_runs(cli: Callable, tmp_path: Path) -> None:
    printed = cli("simulate", "--example")
    assert printed.code == 0
    path = tmp_path / "example.toml"
    path.write_text(printed.out)
    done = cli("simulate", path, "--executor", "serial", "--json").json()
    assert (done["failed"], len({row["policy"] for row in done["rows"]})) == (0, 4)


def test_the_columns_are_told_with_their_types_and_units(cli: Callable, lab: Path) -> None:
    shown = cli("simulate", "--columns")
    assert shown.code == 0
    assert "first_token_p50_ns (integer): arrival to the first token, 50th percentile\n" in shown.out
    table = cli("simulate", lab, "--executor", "serial", "--json").json()["rows"]
    assert [line.split(" ")[0] for line in shown.out.splitlines()] == list(table[0])


def test_a_run_that_fails_is_told_and_ends_with_1(cli: Callable, lab: Path) -> None:
    lab.write_text(LAB + '[policies.own]\nordering = "support.lab_policies:raising"\n')
    done = cli("simulate", lab, "--executor", "threads", "--workers", 2)
    assert done.code == 1
    assert "Failed: chat, own, default model, seed 0: PolicyFault: " in done.out
    assert "8 runs, 2 failed." in done.out
    assert "strict" in done.out


def test_what_stands_in_and_what_changes_nothing_is_said(cli: Callable, lab: Path) -> None:
    lab.write_text(f"seeds = [0, 1]\n{LAB}")
    told = cli("simulate", lab, "--executor", "serial").out
    assert "Note: chat, cancels: recorded on the reference backend, simulated on the default model" in told
    assert "'coresident calibrate'" in told
    assert "Note: no noise on default model: there, seeds change made-up token ids" in told
    lab.write_text(f'devices = ["h200-smollm2-135m"]\n{LAB}')
    assert "Note" not in cli("simulate", lab, "--executor", "serial").out


def test_no_room_for_traces_stops_the_sweep_and_the_same_command_goes_on(
    cli: Callable, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of six traces finds the disk full in its last line; its file is not there, and nothing is logged."""
    lab.write_text(f"record = true\n{LAB}")
    traces, sealed = lab.parent / "lab-results" / "traces", TraceWriter.seal

    def seal(self: TraceWriter, error: str | None = None) -> None:
        if len(list(traces.glob("*.jsonl"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        sealed(self, error)

    with monkeypatch.context() as patched:
        patched.setattr(TraceWriter, "seal", seal)
        full = cli("simulate", lab, "--executor", "serial", "--json")
    error = json.loads(full.err)
    assert (full.code, full.out, error["error"], error["details"]["kept"]) == (1, "", "NotKept", 2)
    assert "No space left on device; 2 of 6 runs are done and kept in" in error["message"]
    assert "give the same command again" in error["message"]
    assert Path(error["details"]["file"]).parent == traces
    assert len(list(traces.iterdir())) == 2
    body = cli("simulate", lab, "--executor", "serial", "--json").json()
    assert (body["kept"], body["failed"], len(list(traces.iterdir()))) == (2, 0, 6)


def test_no_room_for_a_result_or_the_table_says_what_is_kept(
    cli: Callable, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, *_: object, **__: object) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write)
        full = cli("simulate", lab, "--executor", "threads", "--workers", 2)
    assert (full.code, len(full.err.splitlines())) == (1, 1)
    assert "No space left on device; 0 of 6 runs are done and kept in" in full.err
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", write)
        full = cli("simulate", lab, "--executor", "serial")
    assert "results.csv can't be written: No space left on device; 6 of 6 runs are done" in full.err
    assert not list((lab.parent / "lab-results").glob("results*"))


def test_a_lab_that_is_wrong_ends_with_2_and_names_the_key(cli: Callable, lab: Path) -> None:
    lab.write_text(LAB + "[output]\nfolders = 'x'\n")
    done = cli("simulate", lab, "--json")
    assert done.code == 2
    error = json.loads(done.err)
    assert (error["error"], error["details"]["key"]) == ("InvalidRequest", "output.folders")


def test_a_damaged_result_is_told(cli: Callable, lab: Path) -> None:
    assert cli("simulate", lab, "--executor", "serial").code == 0
    damaged = sorted((lab.parent / "lab-results" / "runs").iterdir())[0]
    damaged.write_text("{}")
    done = cli("simulate", lab, "--executor", "serial")
    assert done.code == 0
    assert f"{damaged} was damaged; its run was done again" in done.out
    assert "6 runs, 5 of them kept from before." in done.out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_keeps_what_is_done_and_leaves_no_process(
    started: Callable, cli: Callable, tmp_path: Path, how: signal.Signals
) -> None:
    """The third run says that it is under way, and then never ends: the two before it are done."""
    lab, pipe = tmp_path / "lab.toml", tmp_path / "pipe"
    lab.write_text(STUCK.replace("PIPE", str(pipe)))
    os.mkfifo(pipe)
    process = started("simulate", lab, "--workers", 1, cwd=Path(__file__).parents[1])
    with pipe.open("rb") as end:
        assert end.read(1) == b"."
        process.send_signal(how)
        _, err = process.communicate(timeout=WAIT_S)
        assert end.read() == b""  # The end of the pipe: its writer, a worker process, is gone.
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert b"interrupted; 2 of 3 runs are done and kept" in err
        assert b"Traceback" not in err
    pipe.unlink()
    library.cache_clear()
    body = cli("simulate", lab, "--executor", "serial", "--json").json()
    assert (body["runs"], body["kept"], body["failed"], body["damaged"]) == (3, 2, 0, [])
