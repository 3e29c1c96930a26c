"""What a decision request is answered: scores, refusals, and honest abstentions."""

from __future__ import annotations

import math

import pytest
from coresident.actors.errors import BackendFault, Closed, ContextExceeded, DeviceLost, InvalidRequest, Overloaded
from coresident.actors.messages import Close, Failed, Finished, GrantEnded
from coresident.actors.scoring import finish
from coresident.actors.work import Measured, RowScores, StepResult
from coresident.policies.abstention.confident import confident

from support.bench_host import MS, open_bench
from support.promises import check_promises

PREEMPTIVE = ["strict", "aging", "deadline"]
INSTRUCTION = tuple(range(70, 90))
LONG = tuple(n % 90 + 1 for n in range(200))
ROWS = [[1, 2, 3], [4, 5], [6]]


def test_a_deadline_inside_a_long_generation():
    """In time is answered; too late abstains at its deadline and not after the answer that streams."""
    host = open_bench(context=400)
    answer = host.generate((3, *LONG), 150)
    host.run(until=lambda: len(host.tokens(answer)) >= 10)
    host.decide(ROWS)
    host.run(until=lambda: "d1" in host.ends)
    in_time = host.decide(ROWS, deadline=host.at + 30 * MS)
    too_late = host.decide(ROWS * 2, deadline=host.at + 8 * MS)
    host.run(until=lambda: {in_time, too_late} <= host.ends.keys())
    assert host.ends[in_time].outcome == "completed"
    assert (host.ends[too_late].outcome, host.ends[too_late].reason) == ("abstained", "deadline")
    assert answer not in host.ends
    host.run()
    check_promises(host)
    host.close()


def test_a_deadline_that_comes_while_it_runs_ends_it_at_the_next_segment():
    host = open_bench(abstention=lambda view, memory: (None, None))
    request = host.decide(ROWS * 2, deadline=host.at + 2 * MS)
    host.run()
    assert (host.ends[request].outcome, host.ends[request].reason) == ("abstained", "deadline")
    assert sum(s.step.request == request for s in host.device.segments) <= 3


@pytest.mark.parametrize(
    ("rows", "heads", "error"),
    [
        ([], ["route"], "0 rows: a decision has 1 to 8"),
        ([[1]] * 9, ["route"], "9 rows"),
        ([[1], []], ["route"], "row 1 has no tokens"),
        ([[1]], [], "name at least one of relevance, route, safe"),
        ([[1]], ["route", "mood"], "unknown heads \\['mood'\\]"),
    ],
)
def test_an_unbounded_or_unknown_request_is_refused(rows, heads, error):
    host = open_bench()
    request = host.decide(rows, INSTRUCTION, heads)
    host.run()
    refused = host.ends[request].error
    assert isinstance(refused, InvalidRequest)
    with pytest.raises(InvalidRequest, match=error):
        raise refused


@pytest.mark.parametrize(("length", "fits"), [(43, True), (44, True), (45, False)])
def test_R4_instruction_and_row_fit_a_slot_or_are_refused(length, fits):
    host = open_bench()
    request = host.decide([[1], [2] * length], INSTRUCTION)
    host.run()
    ended = host.ends[request]
    assert ended.outcome == "completed" if fits else isinstance(ended.error, ContextExceeded)


def test_a_full_queue_refuses():
    host = open_bench(queue=2)
    requests = [host.decide(ROWS) for _ in range(3)]
    host.run()
    assert isinstance(host.ends[requests[2]].error, Overloaded)


def test_uncertain_answers_abstain():
    host = open_bench(abstention=confident(threshold=1.0))
    request = host.decide(ROWS, heads=["route"])
    host.run()
    assert (host.ends[request].outcome, host.ends[request].reason) == ("abstained", "uncertain")
    assert host.ends[request].scores == ()


def test_a_slice_that_the_budget_cannot_hold_abstains_with_the_numbers():
    """Two rows are charged 203 bytes; the budget has 150, which the warm-up fits."""
    host = open_bench(workspace=150)
    request = host.decide(ROWS)
    host.run()
    ended = host.ends[request]
    assert (ended.outcome, ended.reason) == ("abstained", "over_budget")
    assert ended.error.details == {
        "what": "workspace of step decision/1 (decision)",
        "asked": 203,
        "available": 150,
    }
    again = host.decide([[1]])
    host.run()
    assert host.ends[again].outcome == "completed"


def test_decisions_abstain_while_nothing_is_there_to_answer():
    host = open_bench()
    host.device.inject = Failed(DeviceLost("gone"), sticky=True)
    running, waiting = host.decide(ROWS), host.decide(ROWS)
    host.run()
    later = host.decide(ROWS)
    host.run()
    for request in (running, waiting, later):
        assert (host.ends[request].outcome, host.ends[request].reason) == ("abstained", "unavailable")
    host.recover("retry")
    host.run()
    recovered = host.decide(ROWS)
    host.run()
    assert host.ends[recovered].outcome == "completed"


def test_after_the_end_decisions_are_refused_as_closed():
    host = open_bench()
    request = host.decide(ROWS)
    host.settle()
    host.send("supervisor", Close())
    host.settle()
    late = host.decide(ROWS)
    host.run()
    assert isinstance(host.ends[request].error, Closed)
    assert isinstance(host.ends[late].error, Closed)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_a_failure_and_never_an_answer(value):
    host = open_bench()
    request, other = host.decide(ROWS), host.decide(ROWS)
    host.settle()
    grant = host.device.running.grant
    host.device.running = None
    scores = (RowScores(0, (1.0,)), RowScores(1, (value,)))
    host.send("device", GrantEnded(grant.grant, Finished(StepResult(scores=scores), Measured(0, 1, 1, 1, 1))))
    host.run()
    assert host.ends[request].outcome == "failed"
    assert isinstance(host.ends[request].error, BackendFault)
    assert host.ends[other].outcome == "completed"


def raises(view, memory):
    raise LookupError("broken")


def leaves(view, memory):
    raise SystemExit(3)


@pytest.mark.parametrize("policy", [raises, leaves, lambda view, memory: (7, None), lambda view, memory: "deadline"])
def test_a_broken_abstention_policy_is_replaced_and_reported_once(policy):
    host = open_bench(abstention=policy)
    requests = [host.decide(ROWS) for _ in range(2)]
    host.run()
    assert [host.ends[r].outcome for r in requests] == ["completed"] * 2
    assert [name for name, _ in host.faults()] == ["abstention"]


@pytest.mark.parametrize(
    ("kind", "raw", "values"),
    [
        ("rank", (3.0, -2.0), (3.0, -2.0)),
        ("probability", (0.0, 1000.0, -1000.0), (0.5, 1.0, 0.0)),
        ("choice", (1000.0, 1000.0), (0.5, 0.5)),
        ("choice", (-1000.0, 1000.0), (0.0, 1.0)),
        ("choice", (5.0,), (1.0,)),
    ],
)
def test_heads_are_finished_without_overflow(kind, raw, values):
    assert finish("h", kind, raw).values == pytest.approx(values)


def test_a_head_of_an_unknown_kind_is_refused():
    with pytest.raises(InvalidRequest, match="kind mood"):
        finish("h", "mood", (1.0,))
