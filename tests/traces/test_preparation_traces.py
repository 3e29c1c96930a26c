"""Preparations in a trace: recorded, read, replayed to the same end."""

from __future__ import annotations

import attrs
import pytest
import trio
from coresident.actors.errors import TraceInvalid
from coresident.actors.messages import PinConversation, ReleaseConversation
from coresident.runtime.backends.modelled import CostModel, ModelledBackend, SleepingBackend
from coresident.traces.blocks import BlockTable
from coresident.traces.codec import encode
from coresident.traces.events_schedule import Advance, Drop, EndPreparation, Seat
from coresident.traces.events_workload import ArriveGeneration, ArrivePreparation, Pin, Release
from coresident.traces.header import header_of
from coresident.traces.outcomes import Outcome, compare
from coresident.traces.reader import TraceReader
from coresident.traces.recorder import Recorder
from coresident.traces.replay import ReplayOptions, replay
from coresident.traces.replay_live import replay_live
from coresident.traces.replay_virtual import replay_virtual
from coresident.traces.workload import load_workload
from resealed import without_messages
from traced_runs import CONFIG, HEADS, MS, SYSTEM, modelled_assembly, play, prepared_chat, record_chat

FAST = CostModel(step_ns=1000, prefill_ns=100, attention_ns=1, decode_ns=1000, row_ns=100, copy_ns=1, load_ns=1000)

# When the modelled device has loaded and is warm.
START = 1_200_000


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared") / "prepared.jsonl"
    record_chat(path, story=prepared_chat)
    return path


def outcomes(workload):
    return {item.request: item.outcome for item in workload.items}


def test_the_recording_has_every_end_of_a_preparation_that_the_policy_leads_to(trace):
    assert {request: (end.outcome, end.reason) for request, end in outcomes(load_workload(trace)).items()} == {
        "ahead": ("prepared", ""),
        "gate": ("completed", ""),
        "turn1": ("completed", "length"),
        "half": ("superseded", ""),
        "whole": ("promoted", ""),
        "turn2": ("completed", "length"),
        "unwanted": ("cancelled", ""),
        "long": ("refused", "ContextExceeded"),
        "idle": ("prepared", ""),
    }


def test_what_was_asked_is_recorded_with_who_waited_for_whom(trace):
    items = {item.request: item for item in load_workload(trace).items}
    ahead, half, turn = items["ahead"].arrival, items["half"].arrival, items["turn1"].arrival
    assert isinstance(ahead, ArrivePreparation)
    assert (ahead.known.tokens, ahead.standing, ahead.conversation) == (450, len(SYSTEM), "talk")
    assert (half.after, half.think_ns) == ("turn1", 0)
    assert (turn.after, turn.think_ns) == ("ahead", 20 * MS)
    assert turn.prompt.blocks[:7] == ahead.known.blocks[:7]
    assert items["unwanted"].cancel.after_ns == 100 * MS


@pytest.mark.parametrize("content", [False, True])
def test_a_replay_on_the_virtual_host_has_equal_outcomes_and_writes_the_same_bytes(tmp_path, content):
    record_chat(tmp_path / "one.jsonl", content=content, story=prepared_chat)
    report = trio.run(replay, tmp_path / "one.jsonl", ReplayOptions(record=tmp_path / "two.jsonl"))
    assert outcomes(load_workload(tmp_path / "one.jsonl")) == outcomes(load_workload(tmp_path / "two.jsonl"))
    assert report.comparison.same
    assert report.comparison.compared == 9
    assert report.statistics == report.recorded
    if not content:
        assert without_messages(tmp_path / "one.jsonl") == without_messages(tmp_path / "two.jsonl")


@pytest.mark.parametrize("prefill", [MS // 100, 5 * MS])
def test_on_a_device_of_another_speed_nothing_counts_as_a_difference(trace, prefill):
    workload = load_workload(trace)
    backend = ModelledBackend(CostModel(prefill_ns=prefill), heads=tuple(HEADS))
    played = replay_virtual(modelled_assembly(backend=backend), workload)
    assert {request: end.outcome for request, end in played.outcomes.items()} != {
        request: end.outcome for request, end in outcomes(workload).items()
    }
    assert compare(outcomes(workload), played.outcomes).same


def test_with_a_policy_that_never_prepares_the_requests_come_out_the_same(trace):
    workload = load_workload(trace)
    never = attrs.evolve(CONFIG.policies, preparation=attrs.evolve(CONFIG.policies.preparation, name="never"))
    played = replay_virtual(modelled_assembly(attrs.evolve(CONFIG, policies=never)), workload)
    assert played.outcomes["ahead"].outcome == "declined"
    assert played.statistics.preparation.computed == 0
    assert played.outcomes["turn2"] == outcomes(workload)["turn2"]
    assert compare(outcomes(workload), played.outcomes).same


def test_a_request_after_a_preparation_finds_it_in_a_live_replay_too(tmp_path):
    def story(client):
        known = (*SYSTEM, *range(300))
        client.then["ahead"] = lambda: client.generate("turn", (*known, 7, 7), 3, after="ahead")
        client.prepare("ahead", known, "talk")

    record_chat(tmp_path / "t.jsonl", story=story)
    workload = load_workload(tmp_path / "t.jsonl")
    played = trio.run(replay_live, modelled_assembly(backend=SleepingBackend(FAST, heads=tuple(HEADS))), workload)
    assert played.outcomes == outcomes(workload)
    for statistics in (workload.recorded, played.statistics):
        (account,) = statistics.preparation.accounts
        assert [(use.request, use.tokens) for use in account.uses] == [("turn", 384)]


@pytest.mark.parametrize("outcome", ["prepared", "promoted", "superseded", "declined", "cancelled"])
def test_how_a_preparation_ended_is_a_matter_of_time_and_no_difference(outcome):
    recorded = {"p": Outcome("prepared", "", prepares=True)}
    assert compare(recorded, {"p": Outcome(outcome, "", prepares=True)}).same


def test_a_preparation_that_fails_or_is_refused_is_a_difference():
    recorded = {"p": Outcome("promoted", "", prepares=True)}
    assert not compare(recorded, {"p": Outcome("failed", "DeviceLost", prepares=True)}).same
    assert not compare(recorded, {"p": Outcome("refused", "ContextExceeded")}).same
    refused = {"p": Outcome("refused", "ContextExceeded")}
    assert not compare(refused, {"p": Outcome("prepared", "", prepares=True)}).same


@pytest.mark.parametrize(
    "event",
    [Seat(2, "r", 0), Advance(2, "r", 5, 10), EndPreparation(2, "r", "prepared", 10, 0, 10), Seat(2, "nobody", 0)],
)
def test_events_of_a_preparation_belong_to_one(tmp_path, event):
    arrival = ArriveGeneration(1, "r", "foreground", BlockTable(64).describe((1, 2)), 1, "i")
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b"".join(map(encode, (header_of(modelled_assembly()), arrival, event))))
    with TraceReader(path) as reader, pytest.raises(TraceInvalid, match=f"line 3: request is '{event.request}'"):
        list(reader)


def test_a_trace_from_before_preparation_is_still_read(tmp_path):
    header = header_of(modelled_assembly())
    old = attrs.evolve(header, policies={name: p for name, p in header.policies.items() if name != "preparation"})
    path = tmp_path / "old.jsonl"
    path.write_bytes(encode(old))
    with TraceReader(path) as reader:
        assert "preparation" not in reader.header.policies
    with pytest.raises(ValueError, match="policies name"):
        attrs.evolve(header, policies={"preparation": header.policies["preparation"]})


def pinned_chat(client):
    """Two conversations with room for one: the first is pinned, let go, and released at the end."""
    host = client.host

    def tell(message):
        return lambda: host.send("generation", message)

    def at(ms, function):
        host.call_at(host.now + ms * MS, function)

    client.prepare("one", range(300), "a")
    at(0, tell(PinConversation("a")))
    at(400, lambda: client.generate("two", range(500, 900), 3, conversation="b"))
    at(900, lambda: client.generate("three", range(300), 3, conversation="a"))
    at(1400, tell(PinConversation("a", pinned=False)))
    at(1500, lambda: client.generate("four", range(1000, 1400), 3, conversation="b"))
    at(2500, tell(ReleaseConversation("b")))


def test_pins_and_releases_are_recorded_and_said_again(tmp_path):
    tight = attrs.evolve(CONFIG, generation=attrs.evolve(CONFIG.generation, retained=CONFIG.generation.retained // 32))
    assembly = modelled_assembly(tight)
    recorder = Recorder.open(tmp_path / "one.jsonl", assembly)
    play(assembly, pinned_chat, (recorder,))
    recorder.close()
    with TraceReader(tmp_path / "one.jsonl") as reader:
        events = list(reader)
    assert [event for event in events if isinstance(event, Pin | Release)] == [
        Pin(START, "a"),
        Pin(START + 1400 * MS, "a", pinned=False),
        Release(START + 2500 * MS, "b"),
    ]
    assert [event.why for event in events if isinstance(event, Drop)] == ["superseded", "evicted", "released"]
    report = trio.run(replay, tmp_path / "one.jsonl", ReplayOptions(record=tmp_path / "two.jsonl"))
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert report.statistics == report.recorded
