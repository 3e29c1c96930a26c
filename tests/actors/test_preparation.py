"""Preparation: what it prefills, when, how it gives way, and how it ends."""

from __future__ import annotations

import pytest
from coresident.actors.errors import ContextExceeded, InvalidRequest, Overloaded
from coresident.actors.events import Granted, PreparationSeated
from coresident.actors.work import PrefillWork, RestoreWork, SaveWork
from coresident.policies.views import WorkClass

from support.bench_host import open_bench
from support.preparing import CHUNK, KNOWN, QUESTION, counts, in_chunk
from support.promises import check_promises


@pytest.mark.parametrize(("tokens", "goal"), [(47, 40), (48, 48), (7, 0), (8, 8), (0, 0)])
def test_R50_R53_known_tokens_are_prepared_up_to_the_last_whole_chunk(tokens, goal):
    host = open_bench(retained=10_000, partition=30_000)
    request = host.prepare(KNOWN[:tokens], standing=tokens // 2)
    host.run()
    assert counts(host, request) == ("prepared", goal, 0, goal, 0)
    assert host.progress.get(request, []) == list(range(CHUNK, goal + 1, CHUNK))
    assert host.kept() == ([KNOWN[:goal]] if goal else [])
    check_promises(host)
    host.close()


@pytest.mark.parametrize("standing", [-1, 49])
def test_R50_a_standing_boundary_outside_the_tokens_is_refused(standing):
    host = open_bench()
    request = host.prepare(KNOWN, standing=standing)
    host.run()
    assert isinstance(host.ends[request].error, InvalidRequest)


@pytest.mark.parametrize("reuse_grid", [1, CHUNK])
def test_R53_the_foreground_goes_on_in_the_chunks_of_a_cold_run(reuse_grid):
    cold, host = open_bench(reuse_grid=reuse_grid), open_bench(reuse_grid=reuse_grid)
    plain = cold.generate(QUESTION, 5)
    cold.run()
    host.prepare(KNOWN[:45])
    host.run()
    asked = host.generate(QUESTION, 5)
    host.run()

    def chunks(bench):
        return [(s.work.start, len(s.work.tokens)) for s in bench.device.finished if isinstance(s.work, PrefillWork)]

    assert chunks(host) == chunks(cold)
    assert host.tokens(asked) == cold.tokens(plain)
    assert (host.reuse[asked].reused, host.reuse[asked].kind) == (40, "exact_continuation")


@pytest.mark.parametrize("can_suspend", [True, False])
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("segments", range(1, 5))
def test_R51_foreground_preempts_it_within_one_segment(slots, can_suspend, segments):
    """With its own slot, or once the preparation has saved what it has; a chunk that can't be suspended is given up."""
    host = open_bench(slots=slots, can_suspend=can_suspend)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, segments)
    asked = host.generate((90, *QUESTION), 3)
    since = len(host.device.segments)
    host.run(until=lambda: asked in host.reuse and host.device.running.grant.step.request == asked)
    between = [s for s in host.device.segments[since:] if not isinstance(s.step.work, SaveWork)]
    assert len(between) <= (1 if can_suspend or slots == 1 else 4)
    host.run()
    assert counts(host, known) == ("prepared", 48, 0, 48, 0)
    check_promises(host)
    host.close()


def test_R52_only_finished_chunks_are_kept_and_it_resumes_where_it_stopped():
    host = open_bench(slots=1)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 2)
    host.generate((90, *QUESTION), 3, retain=False)
    host.run(until=lambda: bool(host.kept()))
    assert host.kept() == [KNOWN[:16]]
    host.run()
    seats = [e.reused for e in host.events if isinstance(e, PreparationSeated)]
    assert seats == [0, 16]
    assert host.prefilled(known) == list(range(48))
    assert host.kept()[-1] == KNOWN
    check_promises(host)


def test_a_suspended_chunk_goes_on_where_it_was():
    """With a slot of its own the other request only takes the device: not even the chunk in flight is lost."""
    host = open_bench(slots=2)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 2)
    host.generate((90, *QUESTION), 3)
    host.run()
    assert len([e for e in host.events if isinstance(e, PreparationSeated)]) == 1
    assert any(e.resumed for e in host.events if isinstance(e, Granted) and e.request == known)
    assert host.prefilled(known) == list(range(48))
    check_promises(host)


@pytest.mark.parametrize("reuse_grid", [1, CHUNK])
@pytest.mark.parametrize("how", ["complete", "immediate", "interrupted", "half", "none"])
def test_R54_complete_immediate_and_interrupted_preparation_all_succeed(how, reuse_grid):
    """The question comes when all is prepared, at once, or in between, after somebody else or not."""
    host = open_bench(slots=1, reuse_grid=reuse_grid)
    known = host.prepare(KNOWN) if how != "none" else None
    if how == "complete":
        host.run()
    elif how in ("half", "interrupted"):
        in_chunk(host, known, 3, 2)
    if how == "interrupted":
        host.generate((90, *QUESTION), 3)
        host.run(until=lambda: "g1" in host.ends)
    asked = host.generate(QUESTION, 9)
    host.run()
    assert host.ends[asked].outcome == "completed"
    reused = {"complete": 48, "immediate": 0, "interrupted": 24, "half": 24, "none": 0}[how]
    assert (host.ends[asked].reused, host.ends[asked].prefilled) == (reused, len(QUESTION) - reused)
    check_promises(host)
    host.close()


def prepared_then_asked(tokens, **fields):
    """Prepare in chunks of 256, at the real size; then ask."""
    host = open_bench(
        chunk=256, context=11_000, workspace=5000, retained=250_000, partition=400_000, prefill_segments=1, **fields
    )
    host.prepare(tokens)
    host.run()
    return host


def test_R23_a_changed_tail_reuses_the_static_prefix_of_8610_of_9191_tokens():
    held = tuple(range(9_000))
    host = prepared_then_asked((), reuse_grid=1)
    host.generate(held, 1)
    host.run()
    asked = host.generate((*held[:8610], *range(20_000, 20_581)), 2)
    host.run()
    reuse = host.reuse[asked]
    assert (reuse.prompt, reuse.reused, reuse.kind) == (9191, 8610, "static_prefix")
    assert host.ends[asked].prefilled == 581


def test_R23_preparation_begins_behind_the_static_prefix():
    """What is prepared again after a change starts at token 8,610, off the grid, and ends on it."""
    held = tuple(range(8_960))
    host = prepared_then_asked(held, reuse_grid=1)
    changed = (*held[:8610], *range(20_000, 20_581))
    again = host.prepare(changed)
    host.run()
    assert counts(host, again) == ("prepared", 8960, 8610, 350, 0)
    asked = host.generate(changed, 2)
    host.run()
    assert host.ends[asked].prefilled == 9191 - 8960


def test_R24_an_exact_continuation_reuses_10245_of_10920_tokens():
    host = prepared_then_asked((), reuse_grid=1)
    turn = tuple(range(10_245))
    host.generate(turn, 1)
    host.run()
    asked = host.generate((*turn, *range(20_000, 20_675)), 2)
    host.run()
    reuse = host.reuse[asked]
    assert (reuse.prompt, reuse.reused, reuse.kind) == (10_920, 10_245, "exact_continuation")
    assert host.ends[asked].prefilled == 675


@pytest.mark.parametrize("prepared", [False, True])
def test_R18_a_utility_call_between_two_turns_changes_nothing_for_the_second(prepared):
    reused = []
    for utility in (False, True):
        host = open_bench(slots=1, retained=10 * 70)
        if prepared:
            host.prepare(KNOWN)
        else:
            host.generate(KNOWN, 4)
        host.run()
        kept = host.kept()
        if utility:
            host.generate((*KNOWN[:30], 5, 5), 6, work_class=WorkClass.UTILITY, retain=False)
            host.run()
        assert host.kept() == kept
        turn = host.generate((*KNOWN, 70, 71), 4)
        host.run()
        reused.append((host.reuse[turn].reused, host.ends[turn].prefilled))
    assert reused[0] == reused[1] == (48, 2)


@pytest.mark.parametrize("slots", [1, 2])
def test_R18_a_utility_call_does_not_take_over_what_is_being_prepared(slots):
    """It would not be kept: it is saved first, serves both, and the preparation goes on."""
    host = open_bench(slots=slots)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 1)
    utility = host.generate(QUESTION, 3, work_class=WorkClass.UTILITY, retain=False)
    host.run()
    assert host.ends[utility].reused == 16
    assert counts(host, known) == ("prepared", 48, 0, 48, 0)
    check_promises(host)


def test_utility_does_not_wait_for_a_preparation_to_end():
    """Below foreground only one slot of two may be taken; the preparation that has it leaves."""
    host = open_bench(slots=2)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 1)
    utility = host.generate((90, *KNOWN), 3, work_class=WorkClass.UTILITY)
    host.run(until=lambda: utility in host.ends)
    assert known not in host.ends
    host.run()
    check_promises(host)


@pytest.mark.parametrize("by", ["prepare", "generate"])
def test_what_is_retained_already_is_not_computed(by):
    host = open_bench()
    host.prepare(KNOWN) if by == "prepare" else host.generate(KNOWN, 4)
    host.run()
    again = host.prepare(KNOWN)
    host.run()
    assert counts(host, again) == ("prepared", 48, 48, 0, 0)


def test_what_is_being_saved_is_waited_for_and_not_computed():
    host = open_bench(reuse_grid=CHUNK)
    host.generate(KNOWN[:9], 1)
    host.run(until=lambda: "g1" in host.ends)
    again = host.prepare(KNOWN[:8])
    host.run()
    assert counts(host, again) == ("prepared", 8, 8, 0, 0)


def test_no_more_is_prepared_than_can_be_retained():
    host = open_bench(retained=10 * 20)
    known = host.prepare(KNOWN)
    host.run()
    assert counts(host, known) == ("prepared", 16, 0, 16, 0)
    assert host.kept() == [KNOWN[:16]]


@pytest.mark.parametrize(("length", "fits"), [(256, True), (257, False)])
def test_tokens_longer_than_the_context_are_refused(length, fits):
    host = open_bench(context=256)
    known = host.prepare(range(length))
    host.run()
    if fits:
        assert host.ends[known].outcome == "prepared"
    else:
        assert isinstance(host.ends[known].error, ContextExceeded)


def test_an_open_id_is_not_given_twice():
    host = open_bench()
    host.generate(KNOWN, 4, name="same")
    host.prepare(KNOWN, name="same")
    host.settle()
    assert isinstance(host.ends["same"].error, InvalidRequest)
    host.prepare(KNOWN, name="other")
    host.generate(KNOWN, 4, name="other")
    host.settle()
    assert isinstance(host.ends["other"].error, InvalidRequest)


def test_preparations_are_bounded_and_take_no_place_of_requests():
    host = open_bench(queue=2)
    names = [host.prepare((n + 90, *KNOWN), conversation=str(n)) for n in range(3)]
    asked = host.generate(QUESTION, 3)
    host.run()
    assert isinstance(host.ends[names[2]].error, Overloaded)
    assert host.ends[asked].outcome == "completed"


def test_an_attempt_that_finished_nothing_computes_a_chunk_the_next_time():
    """Whatever comes after each segment, restores included: it finishes, and nobody else ever waits for long."""
    host = open_bench(slots=1, retained=20_000, partition=40_000, queue=400)
    known = host.prepare(KNOWN)
    waited = 0
    for n in range(200):
        host.run(until=lambda: _own(host, known))
        if known in host.ends:
            break
        host.segment()
        asked, since = host.generate((n, 90, *KNOWN[:3]), 1, retain=False), len(host.device.segments)
        host.run(until=lambda asked=asked: asked in host.reuse)
        waited = max(waited, len(host.device.segments) - since)
    assert host.ends[known].outcome == "prepared"
    assert waited <= 2 + 4 + 2
    host.run()
    restores = [s for s in host.device.finished if isinstance(s.work, RestoreWork)]
    assert restores
    check_promises(host)
    host.close()


def _own(host, request):
    running = host.device.running
    return running is not None and running.grant.step.request == request
