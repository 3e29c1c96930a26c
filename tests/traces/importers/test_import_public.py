"""The public traces themselves, where they lie beside the checkout: every row of them, and figures known of them."""

from __future__ import annotations

import json

import pytest
from coresident.traces.events_schedule import EndGeneration
from coresident.traces.events_workload import ArriveGeneration
from coresident.traces.importers import import_trace
from coresident.traces.workload import load_workload
from imported_traces import arrivals, public, read

MOONCAKE = "mooncake_conversation_trace.jsonl"
WEKA = ("0002", "0022", "0026", "0034", "0277", "0332")
VLLM = ("RTX4090_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B")


def test_every_row_of_mooncake_with_its_ties_and_hits(tmp_path):
    source = public(MOONCAKE)
    summary = import_trace("mooncake", source, tmp_path / "out.jsonl")
    header, events = read(tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    assert (summary.rows, len(events), len({event.at for event in events})) == (12_031, 12_031, 1180)
    assert summary.hit_share == pytest.approx(0.366, abs=0.0005)
    assert [(event.at, event.prompt.tokens, event.expected) for event in events] == [
        (row["timestamp"] * 10**6, row["input_length"], row["output_length"]) for row in rows
    ]
    assert [len(event.prompt.blocks) for event in events] == [len(row["hash_ids"]) for row in rows]
    assert summary.longest == max(row["input_length"] + row["output_length"] for row in rows) > 2**16
    assert header.generation.context == 0


def test_every_row_of_azure_2023(tmp_path):
    summary = import_trace("azure", public("azure2023_conv.csv"), tmp_path / "out.jsonl")
    _, events = read(tmp_path / "out.jsonl")
    assert summary.rows == len(events) == 19_366
    assert (events[1].at, events[-1].at) == (4_314_579_000, 3_501_721_937_000)


@pytest.mark.parametrize("number", WEKA)
def test_every_request_of_a_weka_session_and_what_it_follows(tmp_path, number):
    source = public(f"weka_trace_{number}.json")
    summary = import_trace("weka", source, tmp_path / "out.jsonl")
    _, events = read(tmp_path / "out.jsonl")
    totals = json.loads(source.read_text())["totals"]["combined_tokens"]
    assert (summary.prompt_tokens, summary.output_tokens) == (totals["input"], totals["output"])
    ends = {event.request: event.at for event in events if isinstance(event, EndGeneration)}
    requests = arrivals(events)
    assert [each.request for each in requests if each.after is None] == ["r1"]
    for each in requests:
        if each.think_ns is not None:
            assert ends[each.after] + each.think_ns == each.at
    assert len(load_workload(tmp_path / "out.jsonl").items) == len(requests)


def test_two_models_are_two_identities_and_sub_agents_hang_on_their_session(tmp_path):
    import_trace("weka", public("weka_trace_0332.json"), tmp_path / "two.jsonl")
    assert len({each.identity for each in arrivals(read(tmp_path / "two.jsonl")[1])}) == 2
    import_trace("weka", public("weka_trace_0277.json"), tmp_path / "agents.jsonl")
    requests = {each.request: each for each in arrivals(read(tmp_path / "agents.jsonl")[1])}
    agents = [each for each in requests.values() if "/" in each.conversation]
    assert len({each.conversation for each in agents}) == 4
    heads = [each for each in agents if requests[each.after].conversation == "trace_0277"]
    assert len(heads) == 4
    assert max(each.think_ns for each in heads) < 10**9
    resumed = [
        each
        for each in requests.values()
        if each.conversation == "trace_0277" and each.after and "/" in requests[each.after].conversation
    ]
    assert len(resumed) == 2


@pytest.mark.parametrize("name", VLLM)
def test_recorded_outcomes_are_the_statistics_of_the_import(tmp_path, name):
    source = public(f"llmservingsim_real_{name}-requests.jsonl")
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    summary = import_trace("vllm", source, tmp_path / "out.jsonl")
    assert (summary.rows, summary.ends, summary.failures) == (300, 300, 0)
    workload = load_workload(tmp_path / "out.jsonl")
    recorded = workload.recorded.classes["foreground"]
    firsts = sorted(row["first_token_ts"] - row["queued_ts"] for row in rows)
    assert recorded.first_token.count == recorded.completed == 300
    assert recorded.first_token.max == pytest.approx(firsts[-1] * 1e9, abs=1000)
    assert recorded.tokens == sum(row["output_toks"] for row in rows)
    assert all(isinstance(item.arrival, ArriveGeneration) and item.due is not None for item in workload.items)
