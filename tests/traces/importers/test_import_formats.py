"""Every format: what a small source of it becomes, field by field."""

from __future__ import annotations

import json

import pytest
from coresident.traces.events_schedule import EndGeneration, Tokens
from coresident.traces.events_workload import ArriveGeneration
from coresident.traces.importers import FORMATS, Settings, import_trace
from coresident.traces.workload import load_workload
from imported_traces import (
    AZURE,
    AZURE_2024,
    BAILIAN,
    BURSTGPT,
    BURSTGPT_SESSIONS,
    MOONCAKE,
    SMALL,
    VLLM,
    arrivals,
    asked,
    imported,
    read,
    session,
)

S = 10**9
MS = 10**6


def test_mooncake_blocks_are_global_and_a_shorter_last_one_has_its_own_number(tmp_path):
    header, events, summary = imported(tmp_path, "mooncake", MOONCAKE)
    assert (header.block_size, header.block_scope, header.imported, header.ends) == (512, "source", "mooncake", False)
    assert header.decision is None
    first, second, third = arrivals(events)
    assert [event.at for event in events] == [0, 27 * MS, 27 * MS]
    assert [(each.prompt.tokens, each.max_tokens, each.expected) for each in (first, second, third)] == [
        (1030, 5, 5),
        (1024, 7, 7),
        (600, 1, 1),
    ]
    assert second.prompt.blocks == (1, 2)
    assert first.prompt.blocks[:2] == (1, 2)
    assert third.prompt.blocks[0] == 1
    assert first.prompt.blocks[2] not in (3, third.prompt.blocks[1])
    assert (summary.rows, summary.prompt_tokens, summary.output_tokens, summary.longest) == (3, 2654, 13, 1035)
    assert summary.hit_share == 3 / 7


def test_a_block_of_equal_id_and_other_length_has_another_number(tmp_path):
    lines = [
        json.dumps({"timestamp": 0, "input_length": tokens, "output_length": 1, "hash_ids": [5]})
        for tokens in (512, 100, 101, 100)
    ]
    _, events, _ = imported(tmp_path, "mooncake", "\n".join(lines))
    whole, short, longer, again = [event.prompt.blocks for event in arrivals(events)]
    assert len({whole, short, longer}) == 3
    assert short == again


def test_azure_times_of_both_years_are_exact_and_prompts_share_nothing(tmp_path):
    header, events, summary = imported(tmp_path, "azure", AZURE)
    assert [event.at for event in events] == [0, 4_314_579_000]
    assert [event.prompt.tokens for event in arrivals(events)] == [374, 396]
    blocks = [block for event in arrivals(events) for block in event.prompt.blocks]
    assert len(blocks) == len(set(blocks)) == -(-374 // header.block_size) + -(-396 // header.block_size)
    assert summary.hit_share is None
    _, events, _ = imported(tmp_path, "azure", AZURE_2024)
    assert [event.at for event in events] == [0, 70_000]


def test_a_shared_head_is_whole_blocks_and_no_longer_than_the_prompt(tmp_path):
    text = AZURE.replace("374,44", "100,44")
    _, events, _ = imported(tmp_path, "azure", text, shared_head=300, block_size=64)
    short, long = [event.prompt.blocks for event in arrivals(events)]
    assert (len(short), len(long)) == (2, 7)
    assert [left == right for left, right in zip(short, long, strict=False)] == [True, False]
    assert long[:4] == (1, 2, 3, 4)
    assert len({*short, *long}) == 8


def test_a_burstgpt_row_without_a_response_is_a_failure_at_its_arrival(tmp_path):
    _, events, summary = imported(tmp_path, "burstgpt", BURSTGPT)
    first, failed, end, last = events
    assert [event.at for event in events] == [0, 40_500 * MS, 40_500 * MS, 40_500 * MS]
    assert isinstance(end, EndGeneration)
    assert (end.request, end.outcome, end.tokens) == (failed.request, "failed", 0)
    assert (failed.expected, failed.max_tokens) == (None, 1)
    assert [first.identity, failed.identity, last.identity] == ["ChatGPT", "GPT-4", "ChatGPT"]
    assert (summary.rows, summary.failures, summary.requests) == (3, 1, {"foreground": 3})
    assert load_workload(tmp_path / "out.jsonl").items[1].outcome.outcome == "failed"


def test_rows_of_a_burstgpt_session_follow_each_other_at_their_own_times(tmp_path):
    _, events, summary = imported(tmp_path, "burstgpt", BURSTGPT_SESSIONS)
    assert [event.conversation for event in events] == ["one", "", "one"]
    assert [(event.after, event.think_ns) for event in events] == [(None, None), (None, None), ("r1", None)]
    assert summary.unfollowed == 0


def test_bailian_turns_follow_their_parents_and_stand_on_their_own(tmp_path):
    header, events, summary = imported(tmp_path, "bailian", BAILIAN)
    assert (header.block_size, header.ends) == (16, False)
    assert [event.at for event in events] == [0, 61_386 * MS, 61_886 * MS]
    assert [event.prompt.blocks[0] for event in events] == [8, 8, 8]
    assert [(event.after, event.think_ns) for event in events] == [(None, None), ("r1", None), (None, None)]
    assert [event.conversation for event in events] == ["1", "1", "99"]
    assert summary.unfollowed == 1
    assert summary.hit_share == 2 / 6


def test_vllm_outcomes_are_told_when_they_came(tmp_path):
    header, events, summary = imported(tmp_path, "vllm", VLLM)
    assert header.ends
    kinds = [(type(event), event.request, event.at) for event in events]
    assert kinds == [
        (ArriveGeneration, "r1", 0),
        (ArriveGeneration, "r2", S // 4),
        (Tokens, "r2", S),
        (EndGeneration, "r2", S),
        (Tokens, "r1", 1_500_000_001),
        (EndGeneration, "r1", 1_500_000_001),
    ]
    assert events[2].gaps_ns == (S * 3 // 4,)
    assert events[4].gaps_ns == (S // 2, 333_333_334, 333_333_334, 333_333_333)
    assert (summary.ends, summary.span_ns) == (2, 1_500_000_001)
    recorded = load_workload(tmp_path / "out.jsonl").recorded.classes["foreground"]
    assert (recorded.first_token.count, recorded.first_token.max) == (2, S * 3 // 4)


def test_weka_sub_agents_depend_on_what_started_them_and_results_on_their_ends(tmp_path):
    header, events, _ = imported(tmp_path, "weka", json.dumps(session()))
    assert (header.block_size, header.ends) == (64, True)
    first, inner, last_inner, result = arrivals(events)
    assert [each.at for each in (first, inner, last_inner, result)] == [0, S * 5 // 2, 12 * S, 40 * S]
    assert [each.conversation for each in (first, inner, last_inner, result)] == ["s", "s/helper", "s/helper", "s"]
    assert [each.identity for each in (first, inner, last_inner, result)] == ["large", "small", "small", "large"]
    assert (inner.after, inner.think_ns) == (first.request, S // 2)
    assert (last_inner.after, last_inner.think_ns) == (inner.request, 12 * S - 4 * S - S // 2)
    assert (result.after, result.think_ns) == (last_inner.request, 40 * S - 24 * S - S // 4)
    ends = {event.request: event for event in events if isinstance(event, EndGeneration)}
    assert {name: end.at for name, end in ends.items()} == {
        first.request: 2 * S,
        inner.request: S * 9 // 2,
        last_inner.request: 24 * S + S // 4,
    }
    assert {end.reason for end in ends.values()} == {"end_turn"}
    gaps = [event.gaps_ns for event in events if isinstance(event, Tokens)]
    assert gaps == [(S // 2, S * 47 // 8, S * 47 // 8)]


def test_weka_ids_mean_something_within_their_session_only(tmp_path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.json").write_text(json.dumps(session(name)))
    summary = import_trace("weka", folder, tmp_path / "two.jsonl", Settings(spacing_s=20.0))
    events = arrivals(read(tmp_path / "two.jsonl")[1])
    assert (summary.rows, [event.at // S for event in events]) == (8, [0, 2, 12, 20, 22, 32, 40, 60])
    of_a, of_b = [
        {block for event in events if event.conversation.startswith(name) for block in event.prompt.blocks}
        for name in "ab"
    ]
    assert not of_a & of_b
    first, *_, result = [event.prompt.blocks for event in events if event.conversation == "a"]
    assert first[:3] == result[:3]
    assert first[3] != result[3]


def test_weka_ids_of_global_scope_are_the_same_everywhere(tmp_path):
    _, events, _ = imported(tmp_path, "weka", json.dumps(session(hash_id_scope="global")))
    assert arrivals(events)[0].prompt.blocks[:3] == (2, 3, 4)


def test_a_turn_that_comes_before_an_end_that_it_could_follow_stands_on_its_own(tmp_path):
    requests = [asked(0.0, 64, [1], 5.0), asked(3.0, 64, [1], 1.0), asked(3.5, 64, [1])]
    _, events, _ = imported(tmp_path, "weka", json.dumps(session(requests=requests)))
    assert [(each.after, each.think_ns) for each in arrivals(events)] == [(None, None), ("r1", None), ("r2", None)]


def test_FIELD_65_closed_loop_where_the_source_tells_ends_and_recorded_times_on_request(tmp_path):
    text = json.dumps(session())
    closed = load_workload_of(tmp_path, text)
    opened = load_workload_of(tmp_path, text, open_loop=True)
    assert [item.due is None for item in closed.items] == [False, True, True, True]
    assert [item.due for item in opened.items] == [item.arrival.at for item in closed.items]
    assert [item.arrival.after for item in opened.items] == [item.arrival.after for item in closed.items]


def load_workload_of(folder, text, **settings):
    imported(folder, "weka", text, **settings)
    return load_workload(folder / "out.jsonl")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_source_here_and_no_import_says_what_is_not_known(tmp_path, name):
    header, events, summary = imported(tmp_path, name, SMALL[name])
    assert summary.format == header.imported == name
    assert summary.requests == {"foreground": len(arrivals(events))}
    ends = {event.request for event in events if isinstance(event, EndGeneration)}
    assert len(ends) == summary.ends + summary.failures
    assert header.ends is FORMATS[name].ends
    assert header.device.admitted_context == header.generation.context == 0
