"""``coresident report``: what it writes, and what it leaves behind when it can't."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.reporting import LOG, SAMPLES, never_run, trace


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return trace(tmp_path / "run.jsonl", LOG)


def test_a_page_and_a_timeline_are_written(cli: Callable, run: Path, tmp_path: Path) -> None:
    page, timeline = tmp_path / "page.html", tmp_path / "timeline.json"
    done = cli("report", run, SAMPLES["chat"], "-o", page, "--title", "Tuesday", "--perfetto", timeline)
    assert (done.code, done.out.splitlines()) == (0, [f"wrote {page}", f"wrote {timeline}"])
    assert "<h1>Tuesday</h1>" in page.read_text()
    names = {event["args"]["name"] for event in json.loads(timeline.read_bytes())["traceEvents"] if event["ph"] == "M"}
    assert {"run (reference)", "chat (reference)", "device", "decision", "generation"} <= names
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl", "page.html", "timeline.json"}
    before = page.read_bytes()
    cli("report", run, SAMPLES["chat"], "-o", page, "--title", "Tuesday")
    assert page.read_bytes() == before


def test_a_damaged_trace_is_named_and_nothing_is_written(cli: Callable, run: Path, tmp_path: Path) -> None:
    cut, page, timeline = tmp_path / "cut.jsonl", tmp_path / "page.html", tmp_path / "timeline.json"
    cut.write_bytes(run.read_bytes()[:-40])
    page.write_text("the page of yesterday")
    done = cli("report", run, cut, "-o", page, "--perfetto", timeline)
    assert (done.code, done.out) == (2, "")
    assert f"trace {cut}, line" in done.err
    assert page.read_text() == "the page of yesterday"
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl", "cut.jsonl", "page.html"}


def test_an_import_that_never_ran_is_refused_and_nothing_is_written(cli: Callable, run: Path, tmp_path: Path) -> None:
    path = never_run(tmp_path / "azure.jsonl")
    outputs = ("-o", tmp_path / "page.html", "--perfetto", tmp_path / "timeline.json")
    done = cli("report", run, path, *outputs)
    assert (done.code, done.out) == (2, "")
    assert "imported from azure, not run: 1 decision and 2 foreground requests" in done.err
    assert {each.name for each in tmp_path.iterdir()} == {"run.jsonl", "azure.jsonl"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "none/page.html"], "there is no folder none: make it"),
        (["-o", "."], "which is a folder"),
        (["-o", "run.jsonl"], "which is one of the traces to read"),
        (["--perfetto", "run.jsonl"], "which is one of the traces to read"),
        (["-o", "page", "--perfetto", "page"], "are both to be page"),
        ([], "nothing is to be written"),
    ],
)
def test_outputs_are_checked_before_anything_is_read(
    cli: Callable, run: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(run.parent)
    before = run.read_bytes()
    done = cli("report", "run.jsonl", *arguments)
    assert done.code == 2
    assert words in done.err
    assert (run.read_bytes(), [path.name for path in run.parent.iterdir()]) == (before, ["run.jsonl"])


def test_no_run_and_a_missing_one_are_refused(cli: Callable, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    none, missing = cli("report", "-o", page), cli("report", tmp_path / "none.jsonl", "-o", page)
    assert (none.code, missing.code) == (2, 2)
    assert "none.jsonl: No such file" in missing.err
    assert list(tmp_path.iterdir()) == []


def test_the_same_run_twice_and_a_run_of_nothing_have_pages(cli: Callable, run: Path, tmp_path: Path) -> None:
    empty, page = trace(tmp_path / "empty.jsonl", []), tmp_path / "page.html"
    assert cli("report", run, run, empty, "-o", page).code == 0
    assert "3 runs: run, run (2) and empty" in page.read_text()


def test_a_pipe_is_written_to_as_it_is(cli: Callable, run: Path) -> None:
    assert cli("report", run, "-o", "/dev/null").code == 0


def test_plots_without_matplotlib_are_refused_at_once(
    cli: Callable, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = cli("report", run, "-o", tmp_path / "page.html", "--plots", tmp_path / "plots")
    assert done.code == 2
    assert "pip install 'coresident[plots]'" in done.err
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl"}


def test_a_folder_that_cannot_be_written_is_named(
    cli: Callable, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coresident.traces.report.output.os.replace", full)
    done = cli("report", run, "-o", folder / "page.html")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert list(folder.iterdir()) == []
    shutil.rmtree(folder)
