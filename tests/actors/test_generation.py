"""Generation requests: admission, slots, decode runs."""

from __future__ import annotations

import pytest
from coresident.actors.errors import ContextExceeded, InvalidRequest, Overloaded
from coresident.actors.events import Granted
from coresident.actors.seating import PASSES
from coresident.actors.work import DecodeRow, DecodeWork, PrefillWork, shape_of
from coresident.policies.errors import PolicyFault
from coresident.policies.quantum.fixed import fixed
from coresident.policies.views import WorkClass

from support.bench_host import open_bench
from support.promises import check_promises
from support.scripted_device import solo_tokens

PROMPT = tuple(range(1, 42))


def prompt_of(host, request):
    """The prompt tokens that were computed for a request, in order."""
    works = [s.work for s in host.device.finished if isinstance(s.work, PrefillWork) and s.request == request]
    return [(work.start, work.tokens) for work in works]


@pytest.mark.parametrize(("output", "accepted"), [(99, True), (100, True), (101, False)])
def test_R4_prompt_plus_output_is_at_most_the_admitted_context(output, accepted):
    host = open_bench(context=200)
    request = host.generate(range(100), output)
    host.run()
    ended = host.ends[request]
    if accepted:
        assert ended.outcome == "completed"
        assert host.tokens(request) == solo_tokens(range(100), output)
    else:
        assert isinstance(ended.error, ContextExceeded)
        assert ended.error.details == {"prompt": 100, "requested": 101, "admitted": 200}
    host.close()


def test_R17_a_prompt_is_computed_whole_or_refused_with_the_numbers():
    host = open_bench(context=64)
    whole, refused = host.generate(range(60), 4), host.generate(range(61), 4)
    host.run()
    assert sum((tokens for _, tokens in prompt_of(host, whole)), ()) == tuple(range(60))
    assert "prompt of 61 tokens plus 4 requested exceeds the admitted context of 64 tokens by 1" in str(
        host.ends[refused].error
    )
    assert prompt_of(host, refused) == []


def test_prefill_ends_on_the_chunk_grid_counted_from_position_0():
    host = open_bench(chunk=8)
    first = host.generate(PROMPT[:21], 3)
    host.run()
    second = host.generate((*PROMPT[:13], *range(90, 110)), 1)
    host.run()
    assert [(start, len(tokens)) for start, tokens in prompt_of(host, first)] == [(0, 8), (8, 8), (16, 5)]
    assert [(start, len(tokens)) for start, tokens in prompt_of(host, second)] == [(13, 3), (16, 8), (24, 8), (32, 1)]


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_utility_gets_a_slot_though_foreground_never_rests(slots):
    """At most ``PASSES`` later requests, and those that sit already, are seated before it."""
    host = open_bench(slots=slots, retained=0, queue=100)
    for n in range(slots):
        host.generate((n + 1, *PROMPT), 3)
    host.settle()
    utility = host.generate(PROMPT, 3, work_class=WorkClass.UTILITY)
    for n in range(4 * PASSES):
        host.generate((n + 20, *PROMPT), 3)
    host.run()
    order = list(host.reuse)
    assert order.index(utility) <= slots + PASSES
    check_promises(host)


def test_preparation_never_passes_others_for_having_waited():
    host = open_bench(slots=1)
    host.generate(PROMPT, 3)
    host.settle()
    known = host.prepare((99, *PROMPT))
    requests = [host.generate((n + 20, *PROMPT), 3) for n in range(2 * PASSES)]
    host.run(until=lambda: known in host.progress)
    assert host.ends.keys() == {"g1", *requests}


def test_foreground_does_not_wait_behind_slots_full_of_utility():
    host = open_bench(slots=3)
    for n in range(5):
        host.generate((n + 60, *PROMPT), 20, work_class=WorkClass.UTILITY)
    host.settle()
    urgent = host.generate(PROMPT, 2)
    host.settle()
    assert urgent in host.reuse
    host.run()
    check_promises(host)


def test_sequences_of_a_class_decode_in_one_run():
    host = open_bench(slots=3, quantum=fixed(tokens=4))
    requests = [host.generate((n + 60, *PROMPT), 9) for n in range(3)]
    host.run()
    runs = [s.work for s in host.device.finished if isinstance(s.work, DecodeWork)]
    assert max(len(run.rows) for run in runs) == 3
    assert [host.tokens(r) for r in requests] == [solo_tokens((n + 60, *PROMPT), 9) for n in range(3)]


def test_a_waiting_run_keeps_its_place_when_one_of_its_sequences_is_cancelled():
    """It waits while a newcomer's chunk runs, and is then the one that was submitted first."""
    host = open_bench(slots=3, quantum=fixed(tokens=2))
    stays, goes = (host.generate((n, *PROMPT[:5]), 30) for n in (60, 61))
    host.run(until=lambda: len(host.tokens(stays)) >= 3 and len(host.tokens(goes)) >= 3)
    newcomer = host.generate((62, *PROMPT), 2)
    host.run(until=lambda: host.device.running.grant.step.request == newcomer)
    host.segment()
    cancelled_at = host.at
    host.cancel(goes)
    host.run(until=lambda: host.device.running.grant.step.request == stays)
    granted = [e for e in host.events if isinstance(e, Granted)][-1]
    assert granted.waited_ns > host.at - cancelled_at
    host.run()
    check_promises(host)


def test_a_full_queue_refuses_and_does_not_grow():
    host = open_bench(queue=3)
    requests = [host.generate(PROMPT, 2) for _ in range(4)]
    host.run()
    assert isinstance(host.ends[requests[3]].error, Overloaded)
    assert [host.ends[r].outcome for r in requests[:3]] == ["completed"] * 3


@pytest.mark.parametrize(
    ("prompt", "output", "work_class"),
    [
        ((), 4, WorkClass.FOREGROUND),
        ((1, 2), 0, WorkClass.FOREGROUND),
        ((1, 2), -1, WorkClass.FOREGROUND),
        ((1, 2), 4, WorkClass.PREPARATION),
    ],
)
def test_requests_without_meaning_are_refused(prompt, output, work_class):
    host = open_bench()
    request = host.generate(prompt, output, work_class=work_class)
    host.run()
    assert isinstance(host.ends[request].error, InvalidRequest)


def test_an_open_request_s_id_is_not_given_twice():
    host = open_bench()
    host.generate(PROMPT, 4, name="same")
    host.generate(PROMPT[:9], 4, name="same")
    host.settle()
    assert isinstance(host.ends["same"].error, InvalidRequest)
    assert host.generation.statistics().open == 1


def test_a_runs_shape_stays_within_the_context():
    """A row near its end beside one that is far from it: nobody is charged for positions that nobody reaches."""
    rows = (DecodeRow("a", 0, 97, 1, 3), DecodeRow("b", 1, 10, 1, 50))
    assert shape_of(DecodeWork("m", rows, 8)).context == 100


def raises(view, memory):
    raise ZeroDivisionError


def leaves(view, memory):
    raise SystemExit(3)


@pytest.mark.parametrize(
    "quantum",
    [raises, leaves, lambda view, memory: (0, None), lambda view, memory: (2.5, None), lambda view, memory: None],
)
def test_a_broken_quantum_policy_is_replaced_and_reported_once(quantum):
    host = open_bench(quantum=quantum)
    host.generate(PROMPT, 30)
    host.run()
    check_promises(host)
    ((policy, error),) = host.faults()
    assert policy == "quantum"
    assert isinstance(error, PolicyFault)
