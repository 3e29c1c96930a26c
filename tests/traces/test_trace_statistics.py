"""Statistics of a hand-written log, against figures computed by hand."""

from __future__ import annotations

import json

import pytest
from coresident.traces.events_schedule import (
    Drop,
    EndDecision,
    EndGeneration,
    Grant,
    LedgerState,
    Measures,
    Ready,
    Refuse,
    Retain,
    Reuse,
    Step,
    Tokens,
    Yield,
)
from coresident.traces.events_workload import ArriveDecision, ArriveGeneration, Content
from coresident.traces.quantiles import Spread
from coresident.traces.statistics import Tally
from hypothesis import given
from hypothesis import strategies as st


def arrive(at, request, tokens, work_class="foreground"):
    return ArriveGeneration(at, request, work_class, Content(tokens, ()), 10, "i")


def decide(at, request):
    return ArriveDecision(at, request, Content(30, ()), (Content(5, ()),), ("rank",), "i")


def grant(at, number, step, requests, kind="prefill", work_class="foreground", charge=0, resumed=False, waited=0):
    return Grant(at, number, step, step.split("/")[0], requests, work_class, kind, charge, waited, resumed)


def step(at, number, name, outcome, device_ns, segments, workspace=0, longest=None):
    longest = device_ns // segments if longest is None else longest
    return Step(at, number, name, outcome, Measures(workspace, device_ns, segments, longest, device_ns))


LOG = (
    Ready(0, 1, "ready", 1000),
    LedgerState(0, 700, 0, 0, 1000),
    # g1 arrives at 100 and has the device at once; a decision comes in its prefill and waits for one segment.
    arrive(100, "g1", 200),
    Reuse(100, "g1", 200, 60, 50, "static_prefix"),
    grant(100, 1, "generation/1", ("g1",), charge=40),
    decide(150, "d1"),
    Yield(150, 1, "generation/1", "decision/1"),
    step(200, 1, "generation/1", "suspended", 100, 2, workspace=35),
    grant(200, 2, "decision/1", ("d1",), "decision", "decision", charge=20, waited=50),
    step(260, 2, "decision/1", "finished", 60, 3, workspace=20),
    EndDecision(260, "d1", "completed", "", 1, 5, 10),
    grant(260, 3, "generation/1", ("g1",), charge=40, resumed=True),
    arrive(270, "g2", 100),
    step(400, 3, "generation/1", "finished", 140, 4, workspace=40, longest=38),
    # Both decode together; a decision arrives that nobody yields to: it waits for all four segments, and abstains.
    Reuse(400, "g2", 100, 0, 0, "none"),
    grant(400, 4, "generation/2", ("g1", "g2"), "decode", charge=8),
    decide(410, "d2"),
    step(480, 4, "generation/2", "finished", 80, 4, workspace=8),
    grant(480, 5, "decision/2", ("d2",), "decision", "decision", charge=20, waited=70),
    step(500, 5, "decision/2", "finished", 20, 1, workspace=20),
    EndDecision(500, "d2", "abstained", "deadline", 1, 5, 30),
    Tokens(500, "g1", (300, 20, 40)),
    EndGeneration(500, "g1", "completed", "length", 200, 50, 150, 3),
    Retain(500, "generation", 1, 202, 300),
    arrive(500, "g3", 5000),
    Refuse(500, "g3", "ContextExceeded"),
    decide(500, "d3"),
    Drop(510, "generation", 1, 202, 300, "evicted"),
    Retain(510, "generation", 2, 50, 100),
    Tokens(520, "g2", (140,)),
    EndGeneration(520, "g2", "cancelled", "cancelled", 100, 0, 100, 1),
    EndDecision(530, "d3", "abstained", "unavailable", 1, 5, 0),
    arrive(540, "u1", 10, "utility"),
    EndGeneration(600, "u1", "failed", "DeviceLost", 10, 0, 0, 0, error="DeviceLost"),
    arrive(700, "u2", 10, "utility"),
    Ready(1000, 2, "closing", 0),
)


@pytest.fixture(scope="module")
def statistics():
    tally = Tally()
    for event in LOG:
        tally.add(event)
    return tally.result()


def test_foreground_by_hand(statistics):
    entry = statistics.classes["foreground"]
    assert (entry.requests, entry.completed, entry.cancelled, entry.open) == (3, 1, 1, 0)
    assert entry.refused == {"ContextExceeded": 1}
    assert entry.queue_wait == Spread(2, 130, 0, 130, 130, 130)
    # g1: 100 + 140 + its half of 80; g2: its half.
    assert entry.service == Spread(2, 320, 40, 280, 280, 280)
    assert entry.first_token == Spread(2, 440, 140, 300, 300, 300)
    assert entry.gaps == Spread(2, 60, 20, 40, 40, 40)
    assert entry.tokens == 4
    assert entry.decode_rate == pytest.approx(2 / 60e-9)
    assert entry.rate == pytest.approx(4 / 420e-9)
    assert (entry.prompt_tokens, entry.reused) == (300, 50)
    assert entry.reuse_share == pytest.approx(1 / 6)


def test_decisions_by_hand(statistics):
    entry = statistics.classes["decision"]
    assert (entry.requests, entry.completed) == (3, 1)
    assert entry.abstained == {"deadline": 1, "unavailable": 1}
    assert entry.queue_wait == Spread(2, 120, 50, 70, 70, 70)
    assert entry.service == Spread(2, 80, 20, 60, 60, 60)
    assert entry.foreign_segments == Spread(2, 5, 1, 4, 4, 4)
    assert (entry.prompt_tokens, entry.reused) == (3 * (30 + 5), 40)
    assert entry.first_token == Spread()


def test_utility_by_hand(statistics):
    entry = statistics.classes["utility"]
    assert (entry.requests, entry.failed, entry.open) == (2, {"DeviceLost": 1}, 1)
    assert entry.queue_wait == Spread()
    assert "preparation" not in statistics.classes


def test_the_device_by_hand(statistics):
    device = statistics.device
    assert device.busy_ns == 100 + 60 + 140 + 80 + 20
    assert device.span_ns == statistics.span_ns == 1000
    assert device.utilisation == pytest.approx(0.4)
    assert {kind: (entry.grants, entry.device_ns) for kind, entry in device.kinds.items()} == {
        "prefill": (2, 240),
        "decode": (1, 80),
        "decision": (2, 80),
    }
    assert device.longest_segment_ns == 50
    assert (device.reserved, device.partition) == (700, 1000)
    assert device.workspace_charged == 60
    assert device.workspace_measured == 40
    assert device.retained == 300
    assert (device.yields, device.suspensions, device.drops, device.failures) == (1, 1, 0, 0)


def test_loads_and_warm_ups_are_no_work_and_the_time_before_readiness_is_not_idle():
    tally = Tally()
    for event in (
        grant(0, 1, "supervisor/1", (), kind="load"),
        step(500, 1, "supervisor/1", "finished", 500, 1),
        grant(500, 2, "supervisor/2", (), kind="warmup"),
        step(600, 2, "supervisor/2", "finished", 100, 1),
        Ready(600, 1, "ready", 1000),
        grant(700, 3, "generation/1", ("g1",)),
        step(800, 3, "generation/1", "finished", 100, 4),
        Ready(900, 2, "recovering", 1000),
        Ready(1000, 3, "ready", 1000),
    ):
        tally.add(event)
    device = tally.result().device
    assert (device.ready_ns, device.busy_ns, device.longest_segment_ns) == (600, 100, 25)
    assert (device.utilisation, device.share("foreground")) == (0.25, 1.0)
    assert device.kinds["load"].device_ns == 500


def test_the_dictionary_is_json_with_the_derived_figures(statistics):
    data = json.loads(json.dumps(statistics.as_dict()))
    assert data["device"]["utilisation"] == pytest.approx(0.4)
    assert data["classes"]["foreground"]["reuse_share"] == pytest.approx(1 / 6)
    assert data["classes"]["decision"]["queue_wait"]["p99"] == 70


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
def test_percentiles_are_by_nearest_rank(values):
    spread = Spread.of(values)
    for quantile, value in ((0.5, spread.p50), (0.95, spread.p95), (0.99, spread.p99)):
        assert value in values
        assert sum(other <= value for other in values) >= quantile * len(values)
        assert sum(other < value for other in values) < quantile * len(values)
    assert (spread.count, spread.total, spread.max) == (len(values), sum(values), max(values))
