"""A recording of the virtual host, replayed on it, comes out the same: outcomes, schedule, and bytes."""

from __future__ import annotations

import attrs
import pytest
import trio
from coresident.actors.errors import InvalidRequest, TraceInvalid
from coresident.runtime.backends.modelled import CostModel, ModelledBackend
from coresident.traces.events_messages import Took
from coresident.traces.reader import TraceReader
from coresident.traces.recorder import Recorder
from coresident.traces.replay import ReplayOptions, replay
from coresident.traces.replay_virtual import replay_virtual
from coresident.traces.workload import load_workload
from resealed import without_messages
from traced_runs import CONFIG, MS, SYSTEM, modelled_assembly, play, record_chat


def run(path, **options):
    return trio.run(replay, path, ReplayOptions(**options))


def test_the_recording_has_every_kind_of_end(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    ends = {item.request: item.outcome for item in load_workload(tmp_path / "chat.jsonl").items}
    assert {request: (end.outcome, end.reason) for request, end in ends.items()} == {
        "turn1": ("completed", "length"),
        "gate1": ("completed", ""),
        "gate2": ("completed", ""),
        "turn2": ("completed", "stop_token"),
        "cancelled": ("cancelled", "changed my mind"),
        "early": ("cancelled", "cancelled"),
        "retry": ("completed", "length"),
        "long": ("refused", "ContextExceeded"),
        "late": ("abstained", "deadline"),
        "timed": ("cancelled", "deadline"),
    }
    assert ends["turn2"].tokens == 5
    assert ends["cancelled"].tokens > 1


def test_a_cancel_and_a_follower_are_recorded_relative_to_what_caused_them(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    items = {item.request: item for item in load_workload(tmp_path / "chat.jsonl").items}
    assert items["turn2"].due is None
    assert (items["turn2"].arrival.after, items["turn2"].arrival.think_ns) == ("turn1", 30 * MS)
    assert (items["gate2"].arrival.after, items["gate2"].arrival.think_ns) == ("turn1", 0)
    assert (items["early"].cancel.after_tokens, items["early"].cancel.after_ns) == (0, 1 * MS)
    assert items["cancelled"].cancel.after_tokens > 0


@pytest.mark.parametrize("content", [False, True])
def test_a_replay_on_the_virtual_host_writes_the_same_bytes(tmp_path, content):
    record_chat(tmp_path / "one.jsonl", content=content)
    report = run(tmp_path / "one.jsonl", record=tmp_path / "two.jsonl")
    assert report.comparison.same
    assert report.comparison.compared == 10
    assert report.drift.max == 0
    one, two = (schedule(tmp_path / name) for name in ("one.jsonl", "two.jsonl"))
    assert one == two
    if not content:
        assert without_messages(tmp_path / "one.jsonl") == without_messages(tmp_path / "two.jsonl")
        assert report.statistics == report.recorded


def schedule(path):
    """Events without token ids, which a replay's recording need not have, and without what follows from the ids."""
    with TraceReader(path) as reader:
        return [without_ids(event) for event in reader]


def without_ids(event):
    changes = {}
    if isinstance(event, Took):
        ended = event.given.ended if event.given is not None else None
        given = event.given if ended is None else attrs.evolve(event.given, ended=attrs.evolve(ended, scores=()))
        return attrs.evolve(event, digest="", given=given)
    for name in ("prompt", "instruction"):
        if hasattr(getattr(event, name, None), "ids"):
            changes[name] = attrs.evolve(getattr(event, name), ids=None)
    if hasattr(event, "instruction"):
        changes["rows"] = tuple(attrs.evolve(row, ids=None) for row in event.rows)
    if hasattr(event, "output"):
        changes["output"] = None
    return attrs.evolve(event, **changes)


def test_reuse_survives_although_no_token_is_in_the_trace(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    text = (tmp_path / "chat.jsonl").read_text()
    assert '"ids"' not in text
    assert '"output"' not in text
    report = run(tmp_path / "chat.jsonl")
    assert report.statistics.classes["foreground"].reused == report.recorded.classes["foreground"].reused
    assert report.recorded.classes["foreground"].reused >= 190 + 5 + len(SYSTEM)


def test_a_slower_device_keeps_outcomes_that_do_not_depend_on_time(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    workload = load_workload(tmp_path / "chat.jsonl")
    slow = ModelledBackend(CostModel(decode_ns=60 * MS), heads=("rank", "probability", "choice"))
    played = replay_virtual(modelled_assembly(backend=slow), workload)
    for request in ("turn1", "turn2", "gate1", "gate2", "retry", "long"):
        recorded = next(item.outcome for item in workload.items if item.request == request)
        assert played.outcomes[request] == recorded


def test_a_prompt_too_long_for_the_replays_device_is_a_refusal_and_the_replay_goes_on(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    workload = load_workload(tmp_path / "chat.jsonl")
    small = attrs.evolve(CONFIG, generation=attrs.evolve(CONFIG.generation, context=128))
    played = replay_virtual(modelled_assembly(small), workload)
    assert played.outcomes["turn1"].reason == "ContextExceeded"
    assert played.outcomes["gate1"].outcome == "completed"
    assert sum(played.statistics.classes["foreground"].refused.values()) == 5


def test_progress_counts_to_the_end(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    seen = []
    trio.run(replay, tmp_path / "chat.jsonl", ReplayOptions(), seen.append)
    assert [progress.done for progress in seen] == list(range(1, 11))
    assert {progress.total for progress in seen} == {10}


def test_another_policy_is_used_and_an_unknown_backend_is_refused(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    fifo = run(tmp_path / "chat.jsonl", policy="fifo")
    assert fifo.statistics.device.yields < fifo.recorded.device.yields
    with pytest.raises(InvalidRequest, match=r"device\.backend is 'abacus'"):
        run(tmp_path / "chat.jsonl", backend="abacus")


def test_a_replay_is_not_recorded_over_its_own_trace(tmp_path):
    record_chat(tmp_path / "chat.jsonl")
    before = (tmp_path / "chat.jsonl").read_bytes()
    with pytest.raises(InvalidRequest, match="its own trace"):
        run(tmp_path / "chat.jsonl", record=tmp_path / "chat.jsonl")
    assert (tmp_path / "chat.jsonl").read_bytes() == before


def test_a_trace_without_requests_has_nothing_to_replay(tmp_path):
    record_chat(tmp_path / "none.jsonl", story=lambda client: None)
    with pytest.raises(TraceInvalid, match="no requests"):
        load_workload(tmp_path / "none.jsonl")


def test_a_policy_of_the_recording_user_is_not_imported_from_a_trace(tmp_path):
    own = attrs.evolve(modelled_assembly().config.policies.ordering, name="traced_runs:never_imported")
    assembly = modelled_assembly()
    config = attrs.evolve(assembly.config, policies=attrs.evolve(assembly.config.policies, ordering=own))
    assembly = attrs.evolve(assembly, config=config)
    recorder = Recorder.open(tmp_path / "own.jsonl", assembly)
    play(assembly, lambda client: client.decide("d", [[1]]), [recorder])
    recorder.close()
    report = run(tmp_path / "own.jsonl")
    assert any("traced_runs:never_imported" in warning for warning in report.warnings)
    assert report.comparison.same
