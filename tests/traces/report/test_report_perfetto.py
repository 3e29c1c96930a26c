"""The timeline as viewers read it: slices nest, times don't go back, flows have a beginning and an end."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from coresident.traces.reader import TraceReader
from coresident.traces.report.perfetto import THREADS, Timeline

from support.reporting import EVIL, LOG, MS, SAMPLES, arrive, grant, trace


def timeline(*paths: Path) -> list[dict[str, Any]]:
    """The events of the traces' timeline; times in nanoseconds."""
    file = io.BytesIO()
    writer = Timeline(file)
    for path in paths:
        with TraceReader(path) as reader:
            writer.begin(path.stem, reader.header)
            for event in reader:
                writer.add(event)
            writer.end()
    writer.close()
    body = json.loads(file.getvalue(), parse_float=lambda text: int(text.replace(".", "")))
    assert body["displayTimeUnit"] == "ns"
    return body["traceEvents"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace(tmp_path_factory.mktemp("log") / "log.jsonl", LOG)


def tracks(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] != "M":
            found[event["pid"], event["tid"]].append(event)
    return found


def test_the_timeline_is_well_formed(log: Path) -> None:
    events = timeline(*SAMPLES.values(), log)
    assert {event["pid"] for event in events} == set(range(1, len(SAMPLES) + 2))
    for track in tracks(events).values():
        times = [event["ts"] for event in track]
        assert times == sorted(times)
        depth = 0
        for event in track:
            depth += {"B": 1, "E": -1}.get(event["ph"], 0)
            assert depth in (0, 1)
            assert event["ph"] not in "stf" or depth == 1, "a flow binds to the slice that is open"
        assert depth == 0


def test_flows_and_spans_have_one_beginning_and_one_end(log: Path) -> None:
    events = timeline(SAMPLES["chat"], log)
    flows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event["id"]].append(event["ph"])
    assert len(flows) > 6
    for phases in flows.values():
        assert (phases[0], phases[-1], {*phases[1:-1]} <= {"t"}) == ("s", "f", True)
    spans = Counter((event["ph"], event["id"], event["cat"]) for event in events if event["ph"] in "be")
    assert set(spans.values()) == {1}
    assert len(spans) == 2 * len(flows)


def test_steps_are_slices_of_the_device_by_hand(log: Path) -> None:
    events = [event for event in timeline(log) if event["tid"] == THREADS["device"] and event["ph"] in "BE"]
    told = [(begin["name"], begin["ts"] // MS, end["ts"] // MS, end["args"]["outcome"]) for begin, end in pairs(events)]
    assert told == [
        ("load", 0, 10, "finished"),
        ("prefill g1", 20, 30, "suspended"),
        (f"decision {EVIL}", 30, 40, "finished"),
        ("prefill g1", 40, 50, "withdrawn"),
        (r"prefill u\x1b[2J\ud800", 50, 60, "finished"),
    ]
    args = events[2]["args"] | events[3]["args"]
    assert (args["class"], args["charge"], args["requests"], args["workspace"]) == ("foreground", 40, ["g1"], 30)
    assert [event["args"]["resumed"] for event in events if event["ph"] == "B"] == [False, False, False, True, False]


def pairs(events: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(events[::2], events[1::2], strict=True))


def test_the_ledger_is_counters_by_hand(log: Path) -> None:
    counted = defaultdict(list)
    for event in timeline(log):
        if event["ph"] == "C":
            counted[event["name"]].append((event["ts"] // MS, event["args"]["bytes"]))
    assert counted["ledger: reserved"] == [(0, 700), (100, 0)]
    assert counted["ledger: retained"] == [(0, 0), (50, 300), (70, 0)]
    assert counted["ledger: workspace"][-4:] == [(40, 40), (50, 0), (50, 40), (60, 0)]


def test_yields_and_faults_are_instants(log: Path) -> None:
    names = [event["name"] for event in timeline(log) if event["ph"] == "i"]
    assert names == [
        "ready",
        "told to give way",
        "cancel g1",
        "told to give way",
        "more used than charged",
        "the quantum policy failed",
    ]


def test_no_nanosecond_is_lost(tmp_path: Path) -> None:
    at = 9_007_199_254_740_993
    path = trace(tmp_path / "late.jsonl", [arrive(at, "g"), grant(at + 1, 1, "generation/1", "g")])
    times = [event["ts"] for event in timeline(path) if event["ph"] == "B"]
    assert times == [at, at + 1, at + 1]


def test_what_is_open_at_the_end_ends_there(tmp_path: Path) -> None:
    path = trace(tmp_path / "open.jsonl", [arrive(5, "g"), grant(7, 1, "generation/1", "g")])
    ends = [event for event in timeline(path) if event["ph"] in "Eef" and event["ts"] == 7]
    assert [event["ph"] for event in ends] == ["E", "f", "E", "e"]
    assert ends[0]["args"]["outcome"] == ends[-1]["args"]["outcome"] == "open at the end of the trace"
