"""Cancellation: what it costs, what it keeps, and whom it leaves alone."""

from __future__ import annotations

import pytest
from coresident.actors.messages import Cancel
from coresident.actors.work import StepKind
from coresident.policies.quantum.fixed import fixed
from coresident.policies.views import WorkClass

from support.bench_host import MS, open_bench
from support.promises import check_promises, own_segments

PROMPT = tuple(range(1, 42))
LONG = tuple(n % 90 + 1 for n in range(320))


def after(segments, host):
    """A condition: so many more segments have run."""
    goal = len(host.device.segments) + segments
    return lambda: len(host.device.segments) >= goal


@pytest.mark.parametrize("can_suspend", [True, False])
@pytest.mark.parametrize("segments", [0, 1, 4, 6, 7, 8, 150, 161, 163])
def test_R5_a_cancel_costs_at_most_one_more_segment_and_the_next_request_works(segments, can_suspend):
    """In prefill, at its chunk boundaries, and while streaming: 40 chunks of 4 segments, then tokens."""
    host = open_bench(context=400, can_suspend=can_suspend, retained=0)
    request = host.generate(LONG, 60)
    host.settle()
    host.run(until=after(segments, host))
    since = len(host.device.segments)
    host.cancel(request)
    host.run()
    assert host.ends[request].outcome == "cancelled"
    assert own_segments(host, request, since) <= 1
    assert host.generation.statistics().slots == host.bench.slots
    later = host.generate(PROMPT, 4)
    host.run()
    assert host.ends[later].outcome == "completed"
    check_promises(host)
    host.close()


def test_a_cancel_while_queued_costs_nothing():
    host = open_bench(slots=1)
    busy, queued = host.generate(PROMPT, 9), host.generate(PROMPT, 9)
    host.settle()
    host.cancel(queued)
    host.settle()
    assert host.ends[queued].outcome == "cancelled"
    host.run()
    assert own_segments(host, queued, 0) == 0
    assert host.ends[busy].outcome == "completed"


def test_a_cancel_of_a_suspended_chunk_returns_its_charge_at_once():
    host = open_bench()
    request = host.generate(PROMPT, 4)
    host.settle()
    host.segment()
    host.decide([[1, 2, 3]])
    host.settle()
    host.segment()
    host.settle()
    assert len(host.device.suspended) == 1
    host.cancel(request)
    host.settle()
    assert host.ends[request].outcome == "cancelled"
    assert not host.device.suspended
    assert host.ledger.statistics().accounts["workspace"].used == host.device.running.grant.step.charge
    host.run()
    host.close()


def test_a_cancel_keeps_the_chunks_that_completed_and_claims_no_more():
    """Cancelled at 60 %, again and again: each retry goes on where the last one was, and the fifth finishes."""
    host = open_bench(context=400)
    claimed, kept = [], [0]
    for tries in range(1, 5):
        request = host.generate(LONG, 20)
        host.settle()
        missing = len(LONG) - kept[-1]
        host.run(until=after(missing // 8 * 4 * 6 // 10, host))
        host.cancel(request)
        host.run()
        claimed.append(host.reuse[request].reused)
        kept.append(kept[-1] + host.ends[request].prefilled)
        assert host.ends[request].outcome == "cancelled"
        assert kept[-1] % 8 == 0, tries
    last = host.generate(LONG, 20)
    host.run()
    assert claimed == kept[:-1]
    assert host.reuse[last].reused == kept[-1]
    assert sum(ended.prefilled for ended in host.ends.values()) == len(LONG)
    assert 0.9 * len(LONG) < kept[-1] < len(LONG)
    check_promises(host)
    host.close()


@pytest.mark.parametrize("reuse_grid", [1, 8])
@pytest.mark.parametrize("tokens", [1, 2, 5, 7])
def test_a_cancel_at_a_length_that_is_no_multiple_of_the_chunk(tokens, reuse_grid):
    host = open_bench(quantum=fixed(tokens=3), reuse_grid=reuse_grid)
    request = host.generate(PROMPT, 60)
    host.run(until=lambda: len(host.tokens(request)) >= tokens)
    host.cancel(request)
    host.run()
    said = host.tokens(request)
    held = len(PROMPT) + len(said) - 1
    later = host.generate((*PROMPT, *said, 3, 4), 9)
    host.run()
    assert host.reuse[later].matched == held
    whole = len(PROMPT) - len(PROMPT) % 8  # on the grid, what was generated has to be computed in chunks again
    assert host.reuse[later].reused == (held if reuse_grid == 1 else whole)
    check_promises(host)


def test_a_cancel_before_the_first_token():
    host = open_bench()
    request = host.generate(PROMPT, 9)
    host.cancel(request)
    host.run()
    assert (host.ends[request].outcome, host.ends[request].tokens) == ("cancelled", 0)
    host.close()


def test_a_retry_starts_within_a_step_of_the_cancel():
    """A timeout leaves no worker behind that runs to max_tokens."""
    host = open_bench(slots=1, context=400)
    first = host.generate(PROMPT, 200)
    host.run(until=lambda: len(host.tokens(first)) >= 3)
    since = len(host.device.segments)
    host.cancel(first)
    retry = host.generate((9, *PROMPT), 3)
    host.run(until=lambda: any(s.step.request == retry for s in host.device.segments))
    between = [s for s in host.device.segments[since:] if s.step.request != retry]
    assert sum(s.step.work.kind is not StepKind.SAVE for s in between) <= 1
    host.run()
    check_promises(host)


def test_stop_and_new_request_twenty_times():
    host = open_bench(slots=1, context=400)
    for n in range(20):
        request = host.generate((n + 1, *LONG), 20)
        host.run(until=after(n * 8, host))
        host.cancel(request)
    last = host.generate(PROMPT, 5)
    host.run()
    assert host.ends[last].outcome == "completed"
    assert all(host.ends[r].outcome == "cancelled" for r in host.submitted if r != last)
    check_promises(host)
    host.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_aborts_leave_every_slot_free(seed):
    host = open_bench(slots=4, seed=seed, context=400, queue=200)
    for n in range(100):
        host.generate((n % 7 + 1, *LONG[: n * 3 + 1]), 20)
        host.run(until=after(n % 9, host))
        host.cancel(f"g{n + 1}")
        for _ in range(n % 5):
            host.deliver()
    host.run()
    assert host.generation.statistics().slots == 4
    assert host.generation.statistics().open == 0
    check_promises(host)
    host.close()


def test_a_cancel_touches_no_neighbour_in_the_same_run():
    host = open_bench(slots=3, quantum=fixed(tokens=16))
    requests = [host.generate((n + 60, *PROMPT), 30) for n in range(3)]
    host.run(until=lambda: all(len(host.tokens(r)) >= 3 for r in requests))
    host.cancel(requests[1])
    host.run()
    assert [host.ends[r].outcome for r in requests] == ["completed", "cancelled", "completed"]
    check_promises(host)


def test_a_cancel_is_heard_however_fast_the_loop():
    """Not one token after the segment in which it was delivered."""
    host = open_bench(quantum=fixed(tokens=1024), context=1200)
    request = host.generate((5, 5), 1000)
    host.run(until=lambda: len(host.tokens(request)) >= 20)
    had = len(host.tokens(request))
    host.cancel(request)
    host.run()
    assert len(host.tokens(request)) <= had + 1


def test_a_deadline_ends_a_generation_with_what_it_has():
    host = open_bench(context=400)
    request = host.generate(PROMPT, 200, deadline=host.at + 40 * MS)
    host.run()
    ended = host.ends[request]
    assert (ended.outcome, ended.reason) == ("cancelled", "deadline")
    assert 0 < ended.tokens < 40
    check_promises(host)
    host.close()


@pytest.mark.parametrize("role", ["generation", "decision"])
def test_a_cancel_of_something_unknown_or_ended_is_no_error(role):
    host = open_bench()
    request = host.generate(PROMPT, 2) if role == "generation" else host.decide([[1]])
    host.run()
    host.cancel(request)
    host.send(role, Cancel("never seen"))
    host.run()
    assert host.ends[request].outcome == "completed"


def test_a_cancelled_decision_ends_within_a_segment_and_the_next_one_runs():
    host = open_bench()
    request, other = host.decide([[1, 2], [3], [4], [5]]), host.decide([[6]])
    host.settle()
    host.segment()
    host.settle()
    since = len(host.device.segments)
    host.cancel(request)
    host.run()
    assert host.ends[request].outcome == "cancelled"
    assert own_segments(host, request, since) <= 1
    assert host.ends[other].outcome == "completed"
    check_promises(host)


def test_cancelling_utility_leaves_foreground_alone():
    host = open_bench()
    mine = host.generate(PROMPT, 20)
    other = host.generate((9, *PROMPT), 20, work_class=WorkClass.UTILITY)
    host.run(until=after(9, host))
    host.cancel(other)
    host.run()
    assert host.ends[mine].outcome == "completed"
    assert host.ends[other].outcome == "cancelled"
    check_promises(host)
