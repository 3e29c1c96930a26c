"""A recording replayed on the nursery host: the same outcomes, in real time, on a device that takes microseconds."""

from __future__ import annotations

import attrs
import trio
from coresident.actors.messages import Cancel
from coresident.runtime.backends.modelled import CostModel, SleepingBackend
from coresident.traces.outcomes import Outcome, compare
from coresident.traces.player import Abandon, Player, Submit
from coresident.traces.recorder import Recorder
from coresident.traces.replay_live import replay_live
from coresident.traces.workload import load_workload
from traced_runs import CONFIG, HEADS, MS, modelled_assembly, record_chat

ENOUGH = Cancel("answer", "enough")
FAST = CostModel(
    step_ns=1000, prefill_ns=100, attention_ns=1, decode_ns=1000, row_ns=100, copy_ns=1, load_ns=1000, segments=2
)


def story(client):
    """What does not depend on how fast a device is, within 30 ms."""
    host, start = client.host, client.host.now
    first = tuple(range(300))

    def second_turn():
        answer = client.outputs["turn1"]
        host.call_at(host.now + 2 * MS, lambda: client.generate("turn2", (*first, *answer, 1), 8, 3, after="turn1"))
        client.decide("gate", [[1], [2], [3]], after="turn1")

    client.then["turn1"] = second_turn
    client.generate("turn1", first, 6)
    host.call_at(start + 5 * MS, lambda: client.decide("judge", [[4, 4]] * 5))
    host.call_at(start + 10 * MS, lambda: client.generate("long", range(5000), 1))
    host.call_at(start + 20 * MS, lambda: client.generate("other", range(9000, 9040), 2, retain=False))


def fast_assembly():
    return modelled_assembly(backend=SleepingBackend(FAST, heads=tuple(HEADS)))


def test_a_live_replay_has_the_recorded_outcomes(tmp_path):
    record_chat(tmp_path / "t.jsonl", story=story)
    workload = load_workload(tmp_path / "t.jsonl")
    seen = []
    played = trio.run(replay_live, fast_assembly(), workload, (), seen.append)
    comparison = compare({item.request: item.outcome for item in workload.items}, played.outcomes)
    assert comparison.same
    assert comparison.compared == len(workload.items) == len(played.drifts) == 6
    assert [progress.done for progress in seen] == list(range(1, 7))
    assert played.outcomes["turn2"].reason == "stop_token"
    reused = played.statistics.classes["foreground"].reused
    assert reused == workload.recorded.classes["foreground"].reused > 300


def test_a_recording_of_a_live_replay_replays_to_the_same_outcomes(tmp_path):
    record_chat(tmp_path / "one.jsonl", story=story)
    workload = load_workload(tmp_path / "one.jsonl")
    assembly = fast_assembly()
    recorder = Recorder.open(tmp_path / "two.jsonl", assembly)
    first = trio.run(replay_live, assembly, workload, (recorder,))
    recorder.close()
    again = load_workload(tmp_path / "two.jsonl")
    assert {item.request: item.outcome for item in again.items} == first.outcomes
    second = trio.run(replay_live, fast_assembly(), again)
    assert compare({item.request: item.outcome for item in again.items}, second.outcomes).same


def test_a_cancel_reaches_a_live_request(tmp_path):
    def long_answer(client):
        client.generate("answer", range(40), 2000)
        client.host.call_at(client.host.now + 150 * MS, lambda: client.host.send("generation", ENOUGH))

    record_chat(tmp_path / "t.jsonl", story=long_answer)
    workload = load_workload(tmp_path / "t.jsonl")
    played = trio.run(replay_live, fast_assembly(), workload)
    outcome = played.outcomes["answer"]
    assert (outcome.outcome, outcome.reason) == ("cancelled", "enough")
    assert workload.items[0].cancel.after_tokens <= outcome.tokens < 2000


def test_a_request_refused_at_the_door_counts_and_the_replay_goes_on(tmp_path):
    record_chat(tmp_path / "t.jsonl", story=story)
    workload = load_workload(tmp_path / "t.jsonl")
    config = attrs.evolve(CONFIG, decision=None)
    assembly = modelled_assembly(config, SleepingBackend(FAST))
    played = trio.run(replay_live, assembly, workload)
    assert {played.outcomes[name].reason for name in ("gate", "judge")} == {"InvalidRequest"}
    assert played.outcomes["turn2"].outcome == "completed"


def commands(player, at):
    found = []
    while (command := player.pop(at)) is not None:
        found.append(command.item.request if isinstance(command, Submit) else command)
    return found


def test_the_player_keeps_absolute_times_of_roots_and_relative_times_of_followers(tmp_path):
    record_chat(tmp_path / "t.jsonl", story=story)
    player = Player(load_workload(tmp_path / "t.jsonl"))
    player.start(1000)
    assert commands(player, 1000) == ["turn1"]
    assert player.next_at == 1000 + 5 * MS
    assert commands(player, 500 * MS) == ["judge", "long", "other"]
    assert player.drifts == [0, 495 * MS - 1000, 490 * MS - 1000, 480 * MS - 1000]
    for request in ("other", "long", "judge"):
        player.ended(request, 500 * MS)
    assert player.next_at is None
    player.ended("turn1", 600 * MS)
    assert commands(player, 600 * MS) == ["gate"]
    assert player.next_at == 602 * MS
    assert commands(player, 602 * MS) == ["turn2"]
    player.ended("gate", 603 * MS)
    assert not player.done
    player.ended("turn2", 604 * MS)
    assert player.done


def test_the_player_cancels_after_the_recorded_token_and_time_once(tmp_path):
    record_chat(tmp_path / "t.jsonl")
    workload = load_workload(tmp_path / "t.jsonl")
    (item,) = (item for item in workload.items if item.request == "cancelled")
    player = Player(attrs.evolve(workload, items=(attrs.evolve(item, due=0),)))
    player.start(0)
    assert commands(player, 0) == ["cancelled"]
    for _ in range(item.cancel.after_tokens):
        assert commands(player, 50) == []
        player.token("cancelled", 50)
    abandon = Abandon("generation", "cancelled", "changed my mind")
    assert player.next_at == 50 + item.cancel.after_ns
    player.token("cancelled", 60)
    assert commands(player, 60) == [abandon]
    assert commands(player, 10**12) == []
    player.ended("cancelled", 10**12)
    assert player.done


def test_outcomes_are_compared_to_the_token_but_for_the_race_of_a_cancel():
    recorded = {
        "done": Outcome("completed", "length", 5),
        "gone": Outcome("cancelled", "cancelled", 5),
        "lost": Outcome("failed", "DeviceLost", 1),
        "open": None,
    }
    same = compare(recorded, {**recorded, "gone": Outcome("cancelled", "cancelled", 7), "open": recorded["done"]})
    assert (same.same, same.compared, same.uncompared) == (True, 2, 2)
    for request, other in (
        ("done", Outcome("completed", "length", 6)),
        ("done", Outcome("completed", "stop_token", 5)),
        ("gone", Outcome("cancelled", "cancelled", 8)),
        ("gone", Outcome("cancelled", "deadline", 5)),
        ("gone", Outcome("completed", "length", 5)),
    ):
        different = compare(recorded, {**recorded, "open": recorded["done"], request: other})
        assert [(entry.request, entry.replayed) for entry in different.differences] == [(request, other)]
