"""Decision requests: whole and first, and their instruction kept."""

from __future__ import annotations

import itertools

import pytest
from coresident.actors.errors import DeviceLost
from coresident.actors.events import Granted
from coresident.actors.messages import Failed
from coresident.actors.work import PrefillWork
from coresident.policies.views import WorkClass

from support.bench_host import open_bench
from support.promises import check_promises, less_urgent_before, solo_scores
from support.scripted_device import solo_tokens

PREEMPTIVE = ["strict", "aging", "deadline"]
INSTRUCTION = tuple(range(70, 90))
LONG = tuple(n % 90 + 1 for n in range(200))
ROWS = [[1, 2, 3], [4, 5], [6]]


def instruction_tokens(host):
    works = [s.work for s in host.device.finished if isinstance(s.work, PrefillWork) and s.work.role == "decision"]
    return sum(len(work.tokens) for work in works)


@pytest.mark.parametrize("ordering", PREEMPTIVE)
@pytest.mark.parametrize("segments", range(0, 60, 7))
@pytest.mark.parametrize("seed", [None, 1])
def test_R10_a_whole_decision_goes_before_generations_next_step(ordering, segments, seed):
    """In the middle of a chunk and of a decode run; the tokens are those of a solo run."""
    host = open_bench(ordering=ordering, seed=seed)
    request = host.generate(LONG[:60], 40)
    host.run(until=lambda: len(host.device.segments) >= segments)
    since = len(host.device.segments)
    decision = host.decide(ROWS, INSTRUCTION, ["relevance", "route", "safe"])
    host.run()
    assert less_urgent_before(host, decision, since) <= 1
    ran = [s.step.request for s in host.device.segments if s.step.request in (request, decision)]
    assert [name for name, _ in itertools.groupby(ran)].count(decision) == 1
    assert host.tokens(request) == solo_tokens(LONG[:60], 40)
    assert host.scores(decision) == solo_scores(host.submitted[decision])
    check_promises(host)


@pytest.mark.parametrize("ordering", PREEMPTIVE)
def test_the_next_grant_is_the_decisions_behind_full_slots(ordering):
    host = open_bench(ordering=ordering, slots=2)
    for n in range(12):
        host.generate((n + 1, *LONG[:30]), 9)
    host.settle()
    decision = host.decide(ROWS)
    host.settle()
    host.segment()
    host.settle()
    assert host.device.running.grant.step.request == decision
    host.run()
    check_promises(host)


@pytest.mark.parametrize("ordering", PREEMPTIVE)
def test_a_decision_gets_its_room_from_a_suspended_chunk_when_there_is_none(ordering):
    """A chunk holds 408 of 450 bytes and is dropped, once; it still finishes, and nothing else is computed twice."""
    host = open_bench(ordering=ordering, workspace=450)
    request = host.generate(LONG[:60], 5)
    host.settle()
    host.segment()
    decision = host.decide(ROWS)
    host.run()
    assert host.controller.statistics().drops == 1
    assert less_urgent_before(host, decision, host.begun[decision]) <= 1
    assert host.ends[request].outcome == "completed"
    check_promises(host)
    host.close()


@pytest.mark.parametrize("ordering", [*PREEMPTIVE, "fifo"])
def test_a_generation_whose_client_awaits_a_decision_goes_on(ordering):
    """Zero room beside the stream's steps, and the caller asks before it takes the next token: nobody deadlocks."""
    host = open_bench(ordering=ordering, workspace=450)
    first = host.generate(LONG[:30], 5)
    for n in range(6):
        host.run(until=lambda goal=n: len(host.tokens(first)) >= goal)
        decision = host.decide(ROWS, INSTRUCTION)
        host.run(until=lambda asked=decision: asked in host.ends)
        assert host.ends[decision].outcome == "completed"
    host.run()
    check_promises(host)


def test_decisions_run_one_after_another_in_order():
    host = open_bench()
    requests = [host.decide(ROWS, INSTRUCTION) for _ in range(3)]
    host.run()
    assert list(host.ends) == requests
    assert [name for name, _ in itertools.groupby(s.step.request for s in host.device.segments)][-3:] == requests


def test_an_instruction_is_computed_once():
    host = open_bench()
    requests = [host.decide(ROWS, INSTRUCTION) for _ in range(3)]
    host.run()
    assert instruction_tokens(host) == len(INSTRUCTION)
    assert [host.ends[r].instruction_reused for r in requests] == [0, 20, 20]
    check_promises(host)


def test_R78_a_changed_instruction_invalidates_its_prefix():
    host = open_bench()
    for instruction in (INSTRUCTION, INSTRUCTION[:-1], INSTRUCTION, (1, *INSTRUCTION[1:])):
        request = host.decide(ROWS, instruction)
        host.run()
        assert host.ends[request].instruction_reused == 0
    assert host.decision.statistics().instructions == 4
    check_promises(host)


def test_R78_rows_without_an_instruction_take_its_place():
    """They start at position 0 of the same slots."""
    host = open_bench()
    for instruction in (INSTRUCTION, (), INSTRUCTION):
        host.decide([[9] * 12, [8] * 12], instruction)
        host.run()
    assert instruction_tokens(host) == 2 * len(INSTRUCTION)
    check_promises(host)


def test_an_instruction_is_lost_with_the_device():
    """Though no decision was on it."""
    host = open_bench()
    host.decide(ROWS, INSTRUCTION)
    host.run()
    host.generate(LONG, 3)
    host.settle()
    host.device.inject = Failed(DeviceLost("gone"), sticky=True)
    host.run()
    host.recover("retry")
    host.run()
    request = host.decide(ROWS, INSTRUCTION)
    host.run()
    assert host.ends[request].instruction_reused == 0
    check_promises(host)


def test_a_cancelled_instruction_goes_on_after_its_completed_chunks():
    host = open_bench()
    cancelled = host.decide(ROWS, INSTRUCTION)
    host.run(until=lambda: instruction_tokens(host) == 16)
    host.segment()
    host.cancel(cancelled)
    host.run()
    request = host.decide(ROWS, INSTRUCTION)
    host.run()
    assert host.ends[request].instruction_reused == 16
    assert instruction_tokens(host) == len(INSTRUCTION)
    check_promises(host)


@pytest.mark.parametrize("rows_per_slice", [1, 2, 3, 5])
def test_scores_do_not_depend_on_slicing(rows_per_slice):
    host = open_bench(rows_per_slice=rows_per_slice)
    request = host.decide([[n, n + 1] for n in range(7)], INSTRUCTION, ["route", "safe", "relevance"])
    host.run()
    assert host.scores(request) == solo_scores(host.submitted[request])


@pytest.mark.parametrize("ordering", PREEMPTIVE)
def test_lower_classes_go_on_while_decisions_never_rest(ordering):
    """Decisions follow each other at once; both classes finish, within the time that their share gives."""
    host = open_bench(ordering=ordering, retained=0)
    answers = [host.generate(LONG[:20], 10), host.generate(LONG[:20], 10, work_class=WorkClass.UTILITY)]
    alone = 2 * (3 * host.bench.prefill_segments + 10)
    while not all(answer in host.ends for answer in answers):
        decision = host.decide(ROWS)
        host.run(until=lambda asked=decision: asked in host.ends)
        assert len(host.device.segments) < 40 * alone
    check_promises(host)
    classes = {e.work_class for e in host.events if isinstance(e, Granted)}
    assert classes == {WorkClass.DECISION, WorkClass.FOREGROUND, WorkClass.UTILITY}
