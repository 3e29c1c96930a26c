"""Prefixes stored in files and fetched, and heads that are stored once, in traces and in replays."""

from __future__ import annotations

import attrs
import pytest
import trio
from coresident.actors.messages import Cancel, FetchPrefix, StorePrefix
from coresident.actors.work import PrefixFile
from coresident.traces.codec import decode, encode
from coresident.traces.events_schedule import Drop, EndCheckpoint, Retain
from coresident.traces.events_workload import ArriveCheckpoint
from coresident.traces.reader import TraceReader
from coresident.traces.replay import replay
from coresident.traces.statistics import Tally
from traced_runs import MS, record_chat

HEAD = tuple(range(1000, 1300))


@pytest.fixture
def recorded(tmp_path):
    """Two conversations with one head; the first is stored, fetched, asked for twice, missed, cancelled and refused."""
    path = tmp_path / "kept.prefix"

    def story(client):
        host = client.host

        def ask(ms, message):
            host.call_at(host.now + ms * MS, lambda: host.send("generation", message))

        def store(request, tokens=HEAD):
            return StorePrefix(request, tokens, "template", str(path), "launch")

        def fetch(request, where, tokens=HEAD):
            return FetchPrefix(request, PrefixFile(where, "launch", "template", tokens, 256, 128))

        client.generate("g1", (*HEAD, 1, 2), 3)
        host.call_at(host.now + 2000 * MS, lambda: client.generate("g2", (*HEAD, 3, 4), 3))
        ask(4000, store("stored"))
        ask(4000, store("stored"))
        ask(5000, fetch("there", str(path)))
        ask(5100, fetch("missing", str(tmp_path / "none"), HEAD[1:]))
        ask(5200, store("nothing", (7, 7, 7)))
        host.call_at(host.now + 5300 * MS, lambda: client.generate("busy", range(200), 1, retain=False))
        ask(5301, store("cancelled"))
        ask(5302, Cancel("cancelled", "left"))
        ask(6000, fetch("stored", str(path)))

    record_chat(tmp_path / "t.jsonl", story=story)
    return tmp_path / "t.jsonl"


def events_of(path, *kinds):
    with TraceReader(path) as reader:
        return [event for event in reader if isinstance(event, kinds)]


def test_files_are_told_without_their_paths(recorded, tmp_path):
    asked = [(event.request, event.action, event.tokens) for event in events_of(recorded, ArriveCheckpoint)]
    assert asked == [
        ("stored", "store", 300),
        ("there", "fetch", 300),
        ("missing", "fetch", 299),
        ("nothing", "store", 3),
        ("cancelled", "store", 300),
        ("stored", "fetch", 300),
    ]
    ends = {(event.request, event.outcome): event for event in events_of(recorded, EndCheckpoint)}
    assert list(ends) == [
        ("stored", "completed"),
        ("there", "completed"),
        ("missing", "failed"),
        ("nothing", "refused"),
        ("cancelled", "cancelled"),
    ]
    assert (ends["missing", "failed"].error, ends["nothing", "refused"].error) == ("ArtifactInvalid", "InvalidRequest")
    assert ends["cancelled", "cancelled"].reason == "left"
    assert str(tmp_path).encode() not in recorded.read_bytes()


def test_statistics_count_files_and_what_was_stored_once(recorded):
    tally = Tally()
    for event in events_of(recorded, object):
        tally.add(event)
    statistics = tally.result()
    store, fetch = statistics.checkpoints["store"], statistics.checkpoints["fetch"]
    assert (store.requests, store.open, store.tokens) == (3, 0, 300)
    assert store.outcomes == {"cancelled": 1, "completed": 1, "refused": 1}
    assert fetch.outcomes == {"completed": 2, "failed": 1}
    assert statistics.device.shared_tokens == 256
    assert statistics.as_dict()["checkpoints"]["store"]["requests"] == 3


def test_bytes_retained_less_bytes_dropped_are_nothing_in_the_end(recorded):
    kept, gone = events_of(recorded, Retain), events_of(recorded, Drop)
    assert [(event.shared, event.base) for event in kept[:2]] == [(0, None), (256, kept[0].handle)]
    assert sum(event.bytes for event in kept) == sum(event.bytes for event in gone)


def test_a_replay_leaves_files_out_and_says_so(recorded):
    report = trio.run(replay, recorded)
    assert "6 requests to store or fetch prefixes are left out: their files are no part of the trace" in report.warnings
    assert report.comparison.same
    assert report.statistics.checkpoints == {}


def test_a_trace_from_before_heads_were_shared_is_read():
    event = Retain(1, "generation", 1, 300, 1200, "g1")
    line = encode(attrs.evolve(event, shared=0, base=None))
    assert b"shared" not in line
    assert decode(line) == event
