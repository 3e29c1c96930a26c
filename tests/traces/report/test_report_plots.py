"""Plots: which there are, that they are what they say, and the same again."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from coresident.actors.errors import InvalidRequest
from coresident.traces.report.gather import read_runs
from coresident.traces.report.plots import check_plots, draw_plots

from support.parts import require_or_skip
from support.reporting import LOG, SAMPLES, trace, with_outcomes

ALL = ["latency", "device", "ledger", "waits"]


@pytest.fixture(autouse=True)
def _matplotlib(request: pytest.FixtureRequest) -> None:
    if "without" in request.node.name:
        return
    try:
        check_plots()
    except InvalidRequest as error:
        require_or_skip("plots", str(error))


def texts(path: Path) -> str:
    return " ".join(" ".join(element.itertext()) for element in ElementTree.parse(path).iter() if "text" in element.tag)


def test_plots_are_drawn_alike_twice(tmp_path: Path) -> None:
    odd = trace(tmp_path / "_a$b$c^.jsonl", LOG)
    runs = read_runs([odd])
    first, second = (draw_plots(runs, tmp_path / name) for name in ("one", "two"))
    assert [path.name for path in first] == [f"{name}.svg" for name in ALL]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    for path in first:
        assert "_a$b$c^" in texts(path)
    assert "decision: queue wait" in texts(first[0])


def test_scales_are_words_without_markup_and_the_same_for_all_runs(tmp_path: Path) -> None:
    runs = read_runs([trace(tmp_path / "log.jsonl", LOG), SAMPLES["chat"]])
    latency, *_, waits = [texts(path) for path in draw_plots(runs, tmp_path / "plots")]
    for words in (latency, waits):
        assert re.search(r"mathdefault|[$^{]", words) is None
        assert re.search(r"\d (µs|ms|s)\b", words)
    assert waits.count("≤ 100 µs 1 ms 10 ms 100 ms wait") == len(runs)


def test_an_import_with_its_source_s_outcomes_has_a_plot_of_latency_only(tmp_path: Path) -> None:
    paths = draw_plots(read_runs([with_outcomes(tmp_path / "vllm.jsonl")]), tmp_path / "plots")
    assert [path.name for path in paths] == ["latency.svg"]


def test_plots_as_png(tmp_path: Path) -> None:
    paths = draw_plots(read_runs([trace(tmp_path / "t.jsonl", LOG[3:12])]), tmp_path / "plots", "png")
    assert [path.name for path in paths] == ["latency.png", "device.png", "waits.png"], "there is no ledger"
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_a_run_with_nothing_in_it_has_no_plots(tmp_path: Path) -> None:
    assert draw_plots(read_runs([trace(tmp_path / "t.jsonl", [])]), tmp_path / "plots") == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="a folder whose parent is there"):
        draw_plots(read_runs([SAMPLES["chat"]]), tmp_path / "none" / "plots")


def test_plots_without_matplotlib_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InvalidRequest, match=r"coresident\[plots\]"):
        check_plots()
