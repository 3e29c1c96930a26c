"""For any source: what is written is a whole trace in order, exact to the nanosecond, and the same everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from coresident.traces.events_schedule import EndGeneration, Tokens
from coresident.traces.events_workload import ArriveGeneration, ArrivePreparation
from coresident.traces.workload import load_workload
from hypothesis import given, settings
from hypothesis import strategies as st
from imported_traces import MOONCAKE, arrivals, asked, imported

QUICK = settings(deadline=None, max_examples=40)
GAPS = st.integers(0, 10**10)
TOKENS = st.integers(1, 700)


def seconds(ns):
    return f"{ns // 10**9}.{ns % 10**9:09}"


@QUICK
@given(st.lists(st.tuples(GAPS, TOKENS, st.integers(0, 9)), min_size=1, max_size=12), st.integers(0, 10**18))
def test_times_and_lengths_of_rows_come_back_exactly(tmp_path_factory, rows, start):
    at, times, lines = start, [], ["Timestamp,Model,Request tokens,Response tokens"]
    for gap, prompt, output in rows:
        at += gap
        times.append(at)
        lines.append(f"{seconds(at)},m,{prompt},{output}")
    _, events, summary = imported(tmp_path_factory.getbasetemp(), "burstgpt", "\n".join(lines))
    found = arrivals(events)
    assert [each.at for each in found] == [at - times[0] for at in times]
    assert [(each.prompt.tokens, each.expected or 0) for each in found] == [row[1:] for row in rows]
    assert summary.failures == sum(output == 0 for _, _, output in rows)


@QUICK
@given(st.lists(st.tuples(GAPS, GAPS, GAPS, st.integers(1, 9)), min_size=1, max_size=12))
def test_recorded_ends_come_back_exactly_and_in_order(tmp_path_factory, rows):
    at, lines, ends = 0, [], []
    for gap, first, rest, output in rows:
        at += gap
        stamps = (("queued_ts", at), ("first_token_ts", at + first), ("last_token_ts", at + first + rest))
        fields = ", ".join(f'"{name}": {seconds(ns)}' for name, ns in stamps)
        lines.append(f'{{"input_toks": 5, "output_toks": {output}, {fields}}}')
        ends.append((at + first + rest - rows[0][0], first, first + (rest if output > 1 else 0)))
    _, events, _ = imported(tmp_path_factory.getbasetemp(), "vllm", "\n".join(lines))
    gaps = {event.request: event.gaps_ns for event in events if isinstance(event, Tokens)}
    found = {event.request: event.at for event in events if isinstance(event, EndGeneration)}
    assert [(found[f"r{n}"], gaps[f"r{n}"][0], sum(gaps[f"r{n}"])) for n in range(1, len(rows) + 1)] == ends
    assert [len(gaps[f"r{n}"]) for n in range(1, len(rows) + 1)] == [row[3] for row in rows]


@st.composite
def agents(draw, depth=0):
    """The requests of an agent in order of time, with sub-agents among them."""
    requests, at, blocks = [], 0.0, []
    for _ in range(draw(st.integers(1, 4))):
        at += draw(st.integers(0, 60))
        if depth < 2 and draw(st.integers(0, 3)) == 0:
            inner = draw(agents(depth + 1))
            took = draw(st.integers(0, int(at) * 1000))
            requests.append({"type": "subagent", "t": at, "duration_ms": took, "requests": inner})
            continue
        tokens = draw(TOKENS)
        blocks = [*blocks[: draw(st.integers(0, 9))], *draw(st.lists(st.integers(100, 120), min_size=11, max_size=11))]
        ended = draw(st.none() | st.integers(0, 50).map(float))
        out = draw(st.integers(0, 5))
        model = draw(st.sampled_from("ab"))
        requests.append(asked(at, tokens, blocks[: tokens // 64], ended, out=out, model=model))
    return requests


@QUICK
@given(agents(), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.5]))
def test_any_session_is_a_whole_workload_whose_turns_follow_what_had_ended(
    tmp_path_factory, requests, prepare, gates, share
):
    text = json.dumps({"id": "s", "block_size": 64, "requests": [asked(0.0, 64, [1]), *requests]})
    folder = tmp_path_factory.getbasetemp()
    wanted = {"prepare": prepare, "decide_before_turns": gates, "decisions": share, "seed": 3}
    _, events, summary = imported(folder, "weka", text, **wanted)
    ended = {}
    for event in events:
        if isinstance(event, EndGeneration):
            ended[event.request] = event.at
        elif getattr(event, "think_ns", None) is not None:
            assert ended[event.after] + event.think_ns == event.at
    assert len(load_workload(folder / "out.jsonl").items) == sum(summary.requests.values())
    for event in events:
        if isinstance(event, ArrivePreparation):
            (turn,) = [each for each in events if isinstance(each, ArriveGeneration) and each.request == event.after]
            assert turn.prompt.blocks[: len(event.known.blocks)] == event.known.blocks
            assert event.standing <= event.known.tokens


def test_equal_sources_and_seeds_give_equal_bytes_in_another_process(tmp_path):
    imported(tmp_path, "mooncake", MOONCAKE, decisions=0.5, seed=9)
    command = (
        "from coresident.traces.importers import *; import sys; "
        "import_trace(*sys.argv[1:4], Settings(decisions=0.5, seed=9))"
    )
    subprocess.run(
        [sys.executable, "-c", command, "mooncake", tmp_path / "source.mooncake", tmp_path / "other.jsonl"],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        check=True,
    )
    assert (tmp_path / "other.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
