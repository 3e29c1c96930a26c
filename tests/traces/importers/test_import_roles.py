"""Work that is derived from a source: decisions and preparations, the same for the same seed."""

from __future__ import annotations

import json

import pytest
from coresident.traces.events_schedule import EndGeneration
from coresident.traces.events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from coresident.traces.workload import load_workload
from hypothesis import given, settings
from hypothesis import strategies as st
from imported_traces import BURSTGPT, BURSTGPT_SESSIONS, arrivals, asked, imported, session

SECOND = 10**9


def rows(count, tokens=700):
    row = {"timestamp": 0, "input_length": tokens, "output_length": 3, "hash_ids": [0] * -(-tokens // 512)}
    return (json.dumps(row) + "\n") * count


def decisions(events):
    return [event for event in events if isinstance(event, ArriveDecision)]


def test_a_share_of_the_requests_become_decisions(tmp_path):
    header, events, summary = imported(tmp_path, "mooncake", rows(1000), decisions=0.3)
    assert summary.requests["decision"] + summary.requests["foreground"] == len(events) == 1000
    assert 250 <= summary.requests["decision"] <= 350
    assert header.decision is not None
    assert {head for event in decisions(events) for head in event.heads} <= set(header.decision.heads)
    assert len({event.instruction for event in decisions(events)}) == 1
    assert len({row for event in decisions(events) for row in event.rows}) == 3 * summary.requests["decision"]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 20)])
def test_none_and_all_of_them(tmp_path, share, expected):
    header, events, _ = imported(tmp_path, "mooncake", rows(20), decisions=share)
    assert len(decisions(events)) == expected
    assert (header.decision is not None) is (share > 0)


def test_another_seed_chooses_others_and_the_same_one_the_same(tmp_path):
    found = []
    for seed in (1, 1, 2):
        imported(tmp_path, "mooncake", rows(60), decisions=0.5, seed=seed)
        found.append((tmp_path / "out.jsonl").read_bytes())
    assert found[0] == found[1] != found[2]


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 20_000), st.sampled_from([16, 64, 512]))
def test_decisions_are_sized_from_their_prompt_within_bounds(tmp_path_factory, tokens, size):
    row = {"timestamp": 0, "input_length": tokens, "output_length": 3, "hash_ids": [0] * -(-tokens // size)}
    folder = tmp_path_factory.getbasetemp()
    header, events, _ = imported(folder, "mooncake", json.dumps(row), decisions=1.0, block_size=size)
    (decision,) = events
    lengths = [each.tokens for each in decision.rows]
    assert sum(lengths) == min(tokens, 4096)
    assert 1 <= len(lengths) <= header.decision.max_rows
    assert decision.instruction.tokens + max(lengths) <= header.decision.context
    assert load_workload(folder / "out.jsonl").items[0].arrival == decision


def test_requests_that_failed_do_not_become_decisions(tmp_path):
    _, events, summary = imported(tmp_path, "burstgpt", BURSTGPT, decisions=1.0)
    assert summary.requests == {"decision": 2, "foreground": 1}
    assert [event.outcome for event in events if isinstance(event, EndGeneration)] == ["failed"]


def test_a_decision_comes_right_before_each_turn(tmp_path):
    _, events, summary = imported(tmp_path, "burstgpt", BURSTGPT_SESSIONS, decide_before_turns=True)
    assert [type(event) for event in events] == [ArriveDecision, ArriveGeneration] * 3
    for gate, turn in zip(events[::2], events[1::2], strict=True):
        assert (gate.at, gate.after, gate.think_ns) == (turn.at, turn.after, turn.think_ns)
    assert events[5].after == events[1].request
    assert summary.unfollowed == 0


def test_a_decision_before_a_turn_follows_the_same_end(tmp_path):
    _, events, _ = imported(tmp_path, "weka", json.dumps(session()), decide_before_turns=True)
    gates = {event.at: event for event in decisions(events)}
    for turn in arrivals(events):
        assert (gates[turn.at].after, gates[turn.at].think_ns) == (turn.after, turn.think_ns)


TALK = [
    asked(0.0, 300, [1, 2, 3, 4], 2.0),
    asked(10.0, 400, [1, 2, 3, 9, 10, 11], None),
    asked(20.0, 500, [1, 2, 3, 9, 10, 11, 12], 3.0),
    asked(30.0, 600, [1, 2, 3, 9, 10, 11, 12, 13, 14], 1.0, model="other"),
    asked(40.0, 64, [70], 1.0, model="other"),
]


def test_what_the_next_turn_begins_with_is_prepared_when_a_turn_has_ended(tmp_path):
    _, events, summary = imported(tmp_path, "weka", json.dumps(session(requests=TALK)), prepare=True)
    (preparation,) = [event for event in events if isinstance(event, ArrivePreparation)]
    first, second, *_ = arrivals(events)
    assert (preparation.at, preparation.after, preparation.think_ns) == (2 * SECOND, first.request, 0)
    assert preparation.known.tokens == 192
    assert preparation.known.blocks == first.prompt.blocks[:3] == second.prompt.blocks[:3]
    assert (preparation.standing, preparation.identity, preparation.conversation) == (60, "large", "s")
    assert summary.requests["preparation"] == 1
    places = {getattr(event, "request", ""): place for place, event in enumerate(events)}
    assert places[preparation.request] == [type(event) for event in events].index(EndGeneration) + 1


def test_open_loop_prepares_at_recorded_times(tmp_path):
    text = json.dumps(session(requests=TALK))
    _, events, _ = imported(tmp_path, "weka", text, prepare=True, open_loop=True)
    (preparation,) = [event for event in events if isinstance(event, ArrivePreparation)]
    assert (preparation.at, preparation.think_ns) == (2 * SECOND, None)


def test_a_turn_that_became_a_decision_has_no_recorded_end_to_follow(tmp_path):
    _, events, _ = imported(tmp_path, "weka", json.dumps(session(requests=TALK)), decisions=1.0)
    assert [event.after for event in events] == [None, "r1", "r2", "r3", "r4"]
    assert {event.think_ns for event in events} == {None}
