"""What calibration takes from the events of a trace, one kind of step at a time, on events written by hand."""

from __future__ import annotations

import pytest
from coresident.traces.calibrate.observe import Observer, Sample
from coresident.traces.events_schedule import (
    EndCheckpoint,
    EndGeneration,
    Grant,
    Measures,
    Retain,
    Reuse,
    Step,
    Tokens,
)
from coresident.traces.events_workload import ArriveCheckpoint, ArriveDecision, ArriveGeneration, Content
from coresident.traces.header import header_of
from traced_runs import modelled_assembly

HEADER = header_of(modelled_assembly())


def arrive(request, at=0, prompt=10):
    return ArriveGeneration(at, request, "foreground", Content(prompt, ()), 9, "i")


def ended(request, at, prompt=10):
    return EndGeneration(at, request, "completed", "length", prompt, 0, prompt, 4)


def step(number, begin, end, kind, requests, device_ns, outcome="finished", step_ns=None, segments=1, **shape):
    """A grant and its end; the device took ``device_ns`` of the time between."""
    name, resumed = f"s/{'-'.join(requests)}", step_ns is not None and outcome == "finished"
    grant = Grant(begin, number, name, "generation", requests, "foreground", kind, 7, 0, resumed, **shape)
    measured = Measures(0, device_ns, segments, device_ns, step_ns or device_ns)
    return grant, Step(end, number, name, outcome, measured)


def observe(*events):
    observer = Observer(HEADER)
    for event in events:
        observer.add(event)
    return observer.result()


def test_a_chunk_that_was_suspended_counts_once_with_the_time_of_all_its_grants():
    seen = observe(
        arrive("a"),
        *step(1, 0, 40, "prefill", ("a",), 30, "suspended", segments=3, rows=1, tokens=8, context=20),
        *step(2, 60, 90, "prefill", ("a",), 20, step_ns=50, segments=2, rows=1, tokens=8, context=20),
    )
    assert seen.samples == (Sample(60, "prefill", 50, 1, 8, 160, (8,)),)
    assert seen.segments == ()


def test_a_decode_run_is_the_tokens_that_its_requests_made_in_it():
    """Prompts of 10 and 20 tokens. The first request makes tokens 1 to 3 in the run, the second token 1 alone."""
    seen = observe(
        arrive("a", 0, 10),
        arrive("b", 0, 20),
        *step(1, 100, 200, "decode", ("a", "b"), 90, rows=2, tokens=8, context=28),
        Tokens(200, "a", (100, 30, 30, 40)),
        ended("a", 200, 10),
        Tokens(200, "b", (50, 80)),
        ended("b", 200, 20),
    )
    assert seen.samples == (Sample(100, "decode", 90, 3, 4, (10 + 11 + 12) + 20),)


def test_a_decode_run_of_a_request_that_never_ended_is_left_out():
    run = step(1, 100, 200, "decode", ("a",), 90, rows=1, tokens=8, context=28)
    assert observe(arrive("a"), *run).samples == ()


def test_a_slice_of_a_decision_is_its_next_rows():
    rows = tuple(Content(tokens, ()) for tokens in (3, 5, 4))
    arrival = ArriveDecision(0, "d", Content(10, ()), rows, ("h",), "i")
    seen = observe(
        arrival,
        *step(1, 0, 9, "decision", ("d",), 9, rows=2, tokens=5, context=15, segments=12),
        *step(2, 9, 13, "decision", ("d",), 4, rows=1, tokens=4, context=14, segments=6),
    )
    assert seen.samples == (
        Sample(0, "decision", 9, 2, 8, 3 * 13 + 5 * 15, (3, 5)),
        Sample(9, "decision", 4, 1, 4, 4 * 14, (4,)),
    )
    assert seen.segments == (6, 6)


@pytest.mark.parametrize(("shared", "copied"), [(0, 100), (64, 36)])
def test_a_save_copies_what_no_other_prefix_has(shared, copied):
    seen = observe(
        arrive("a"),
        *step(1, 0, 50, "save", ("a",), 40),
        Retain(51, "generation", 1, 100, copied * 8, "a", shared, 3 if shared else None),
    )
    assert seen.samples == (Sample(0, "save", 40, 1, copied, copied * 100),)
    assert seen.kv_bytes == (8,)


def test_restores_and_files_have_the_tokens_that_were_found():
    seen = observe(
        arrive("a"),
        Reuse(0, "a", 40, 30, 30, "static_prefix", 1),
        *step(1, 0, 5, "restore", ("a",), 5),
        ArriveCheckpoint(6, "c", "store", 25, "i"),
        *step(2, 6, 10, "store", ("c",), 4),
        EndCheckpoint(11, "c", "completed", "", 25, 200),
    )
    assert seen.samples == (Sample(0, "restore", 5, 1, 30, 900), Sample(6, "store", 4, 1, 25, 625))


def test_the_gap_is_what_is_left_between_two_grants_of_one_request():
    """Grants at 0 and 50 with 40 of device time, then another's, which says nothing."""
    seen = observe(
        arrive("a"),
        arrive("b"),
        *step(1, 0, 45, "prefill", ("a",), 40, rows=1, tokens=8, context=8),
        *step(2, 50, 80, "prefill", ("a",), 30, rows=1, tokens=8, context=16),
        *step(3, 95, 99, "prefill", ("b",), 4, rows=1, tokens=8, context=8),
    )
    assert seen.gaps == ((0, 10),)
    assert seen.before(50).gaps == ((0, 10),)
    assert [sample.at for sample in seen.before(50).samples] == [0]
