"""Simulations: equal to the byte wherever they run, streamed where they may be long, ended cleanly by broken parts."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio
from coresident.actors.errors import BudgetExceeded, PolicyFault, TraceDiverged, TraceInvalid
from coresident.actors.messages import Cancel
from coresident.runtime.backends.device_file import load_device
from coresident.runtime.config import on_device, structure
from coresident.traces.events_schedule import LedgerState, Reuse
from coresident.traces.header import config_of
from coresident.traces.importers.run import import_trace
from coresident.traces.importers.turn import Settings
from coresident.traces.reader import TraceReader
from coresident.traces.recorder import Recorder
from coresident.traces.replay import ReplayOptions, replay
from coresident.traces.simulate import simulate
from coresident.traces.streaming import StreamedWorkload, open_workload
from coresident.traces.workload import load_workload
from imported_runs import BLOCK, MS, failure, request, ties, write_imported
from traced_runs import modelled_assembly, play, prepared_chat, record_chat

TESTS = Path(__file__).parents[1]
SAMPLES = sorted((TESTS.parent / "traces" / "samples").glob("*.jsonl"))
SHARED = TESTS.parents[1] / "shared" / "traces" / "mooncake_conversation_trace.jsonl"
SCRIPT = """
import sys
from coresident.traces.simulate import simulate
print(*(simulate(trace).digest for trace in sys.argv[1:]))
"""


def digests_elsewhere(hash_seed, *traces):
    """The digests of simulations in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SCRIPT, *map(str, traces)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_FIELD_69_runs_in_other_processes_under_load_are_equal_to_the_byte(tmp_path):
    traces = [ties(tmp_path / "t.jsonl"), *SAMPLES]
    if SHARED.is_file():
        import_trace("mooncake", SHARED, tmp_path / "mooncake.jsonl", Settings(limit=60))
        traces.append(tmp_path / "mooncake.jsonl")
    load = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        here = [simulate(trace).digest for trace in traces]
        assert digests_elsewhere("1", *traces) == digests_elsewhere("77", *traces) == here
    finally:
        load.kill()
        load.wait()
    assert len(set(here)) == len(traces)


def test_a_recorded_cap_above_another_models_limit_is_that_limit():
    with TraceReader(SAMPLES[0]) as reader:
        config, _ = config_of(reader.header)
    device = on_device(config, "a100-llama2-70b").device
    capped = attrs.evolve(config, device=device, generation=attrs.evolve(config.generation, context=50_000))
    assert simulate(SAMPLES[0], capped).context == load_device("a100-llama2-70b").context_limit == 16_384


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_two_simulations_of_a_sample_are_equal(sample):
    one, two = simulate(sample), simulate(sample)
    assert one == two
    assert one.digest != simulate(sample, structure({"generation": {"sequences": 1, "context": 2048}})).digest
    assert sum(one.outcomes.values()) == one.requests


def test_two_simulations_of_mooncake_are_equal(tmp_path):
    if not SHARED.is_file():
        pytest.skip("there is no folder shared/traces beside the checkout")
    import_trace("mooncake", SHARED, tmp_path / "m.jsonl", Settings(limit=30))
    config = structure({"device": {"partition": "64 GiB"}, "generation": {"sequences": 8, "retained": "8 GiB"}})
    one, two = simulate(tmp_path / "m.jsonl", config), simulate(tmp_path / "m.jsonl", config)
    assert one == two
    assert sum(one.outcomes.values()) == one.requests == 30


def test_a_simulation_and_a_replay_on_the_modelled_device_are_one_run(tmp_path):
    record_chat(tmp_path / "t.jsonl", story=prepared_chat)
    simulation = simulate(tmp_path / "t.jsonl", record=tmp_path / "s.jsonl")
    report = trio.run(replay, tmp_path / "t.jsonl", ReplayOptions(record=tmp_path / "r.jsonl"))
    assert simulation.statistics == report.statistics
    assert simulation.recorded == report.recorded
    assert (tmp_path / "s.jsonl").read_bytes() == (tmp_path / "r.jsonl").read_bytes()


def test_the_digest_does_not_depend_on_who_else_looks(tmp_path):
    trace = ties(tmp_path / "t.jsonl", 16)
    plain = simulate(trace)
    seen = []

    class Watch:
        def delivered(self, delivery):
            seen.append(delivery)

        def token(self, request, index, at):
            return

        def dropped(self, error):
            raise error

    watched = simulate(trace, observers=[Watch()], record=tmp_path / "r.jsonl", on_progress=lambda progress: None)
    assert watched == plain
    assert seen
    unhashed = simulate(trace, digest=False)
    assert attrs.evolve(unhashed, digest=plain.digest) == plain
    assert unhashed.digest == ""


def test_another_seed_makes_other_tokens_of_the_same_structure(tmp_path):
    trace = ties(tmp_path / "t.jsonl", 16)
    assert simulate(trace, seed=1).statistics == simulate(trace, seed=2).statistics


# --- streamed workloads ----------------------------------------------------------------------------------------------


def test_an_imported_trace_is_streamed_and_has_no_schedule_of_its_own(tmp_path):
    trace = write_imported(tmp_path / "t.jsonl", [request(n, n * 40, (1, n + 1)) for n in range(1, 9)])
    with closing(open_workload(trace)) as workload:
        assert isinstance(workload, StreamedWorkload)
    streamed = simulate(trace)
    assert (streamed.requests, streamed.outcomes, streamed.recorded) == (8, {"completed": 8}, None)
    assert streamed.statistics.classes["foreground"].tokens == 32
    assert streamed.statistics.classes["foreground"].reused >= BLOCK


def test_only_the_next_root_and_the_places_of_followers_are_held(tmp_path):
    trace = ties(tmp_path / "t.jsonl", 40)
    workload = StreamedWorkload(trace)
    roots = workload.roots()
    first = next(roots)
    assert (first[0], first[1], first[2].request) == (0, 0, "r1")
    assert [root[:2] for root in roots] == sorted(root[:2] for root in workload.roots())[1:]
    assert [(place, item.request) for place, item in workload.followers("r1")] == [(6, "r4")]
    assert workload.followers("r1") == [], "it is forgotten once it was asked for"
    workload.close()


def test_a_follower_comes_its_think_time_after_the_end_that_it_follows(tmp_path):
    trace = write_imported(tmp_path / "t.jsonl", [request(1, 0), request(2, 1, after="r1", think_ns=70 * MS)])
    simulate(trace, record=tmp_path / "r.jsonl")
    items = {item.request: item for item in load_workload(tmp_path / "r.jsonl").items}
    assert (items["r2"].arrival.after, items["r2"].arrival.think_ns) == ("r1", 70 * MS)


def test_a_streamed_workload_and_one_held_whole_are_one_run(tmp_path):
    trace = ties(tmp_path / "t.jsonl", 24)
    streamed, report = simulate(trace), trio.run(replay, trace)
    assert streamed.statistics == report.statistics
    assert report.comparison.compared == 0


def test_a_request_that_failed_at_its_source_is_asked_again(tmp_path):
    trace = write_imported(tmp_path / "t.jsonl", [request(1, 0, expected=1), failure(1, 0), request(2, 5)])
    assert simulate(trace).outcomes == {"completed": 2}


def test_a_request_stops_after_the_tokens_that_its_source_tells(tmp_path):
    long = attrs.evolve(request(1, 0), max_tokens=50)
    simulation = simulate(write_imported(tmp_path / "t.jsonl", [long]))
    assert simulation.statistics.classes["foreground"].tokens == 4


def test_equal_blocks_are_equal_tokens_and_a_shorter_last_one_is_another(tmp_path):
    events = [request(1, 0, (5, 6)), request(2, 3000, (5, 6, 7)), request(3, 6000, (5, 6), tokens=BLOCK + 3)]
    simulate(write_imported(tmp_path / "t.jsonl", events), record=tmp_path / "r.jsonl")
    with TraceReader(tmp_path / "r.jsonl") as reader:
        reuse = {event.request: event for event in reader if isinstance(event, Reuse)}
    assert [reuse[f"r{n}"].matched for n in (1, 2, 3)] == [0, 2 * BLOCK, BLOCK]


def test_a_limit_plays_the_first_requests(tmp_path):
    trace = ties(tmp_path / "t.jsonl", 40)
    assert simulate(trace, limit=7).requests == 7
    record_chat(tmp_path / "own.jsonl")
    assert simulate(tmp_path / "own.jsonl", limit=2).requests == 2


def test_a_damaged_line_is_named_before_anything_runs(tmp_path):
    trace = ties(tmp_path / "t.jsonl", 10)
    lines = trace.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"max_tokens":4', b'"max_tokens":-4')
    trace.write_bytes(b"".join(lines))
    with pytest.raises(TraceInvalid, match=r"line 6.*max_tokens"):
        simulate(trace)


# --- what can't go on ------------------------------------------------------------------------------------------------


def test_a_request_that_follows_nobody_ends_the_run_with_its_name(tmp_path):
    trace = write_imported(tmp_path / "t.jsonl", [request(1, 0), request(2, 9, after="r7", think_ns=0)])
    with pytest.raises(TraceDiverged, match=r"1 of 2 requests .*request r2 .*follows the end of r7") as caught:
        simulate(trace)
    assert any("the device is idle" in line for line in caught.value.details["waits"])


def test_FIELD_73_a_prompt_that_can_never_be_served_is_refused_at_its_arrival(tmp_path):
    events = [request(1, 0, tuple(range(1, 100))), request(2, 5), request(3, 6, tuple(range(1, 65)))]
    simulation = simulate(write_imported(tmp_path / "t.jsonl", events, context=256))
    assert simulation.outcomes == {"completed": 1, "refused": 2}
    assert simulation.statistics.classes["foreground"].refused == {"ContextExceeded": 2}
    tiny = structure({"device": {"partition": 4096}})
    with pytest.raises(BudgetExceeded):
        simulate(tmp_path / "t.jsonl", tiny)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("ordering", "broken_policies:raises", "ZeroDivisionError"),
        ("ordering", "broken_policies:nonsense", "returned .*: .Choice, memory. is needed"),
        ("ordering", "broken_policies:absent", "chose nobody"),
        ("quantum", "broken_policies:nothing", "quantum chose 0"),
        ("preparation", "broken_policies:later", "never schedules"),
    ],
)
def test_a_broken_policy_ends_the_run_with_its_name_and_nothing_left(tmp_path, kind, name, message, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    record_chat(tmp_path / "t.jsonl", story=prepared_chat)
    config = structure({"generation": {"context": 2048, "chunk": 128}, "policies": {kind: name}})
    with pytest.raises(PolicyFault, match=message) as caught:
        simulate(tmp_path / "t.jsonl", config, record=tmp_path / "r.jsonl")
    assert (caught.value.details["kind"], caught.value.details["name"]) == (kind, name)
    with TraceReader(tmp_path / "r.jsonl") as reader:
        events = list(reader)
    ledger = [event for event in events if isinstance(event, LedgerState)][-1]
    assert (ledger.reserved, ledger.used, ledger.workspace) == (0, 0, 0)


def test_a_replay_goes_on_with_another_policy_as_a_live_host_does(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    record_chat(tmp_path / "t.jsonl")
    report = trio.run(replay, tmp_path / "t.jsonl", ReplayOptions(policy="broken_policies:raises"))
    assert report.statistics.device.policy_faults == 1
    assert report.comparison.compared == 10


def test_what_stands_in_a_recording_at_one_instant_is_played_in_its_order(tmp_path):
    """A cancel between two preparations of one instant: the first is cancelled, not superseded."""

    def story(client):
        client.prepare("first", range(300), "talk")
        client.host.send("generation", Cancel("first"))
        client.prepare("second", range(300), "talk")

    assembly = modelled_assembly()
    recorder = Recorder.open(tmp_path / "t.jsonl", assembly)
    play(assembly, story, (recorder,))
    recorder.close()
    simulation = simulate(tmp_path / "t.jsonl")
    assert simulation.statistics.preparation.outcomes == simulation.recorded.preparation.outcomes
    assert simulation.recorded.preparation.outcomes == {"cancelled": 1, "prepared": 1}
