"""What is promised under every shipped policy of every kind, over random workloads on the virtual host.

A policy that joins the catalogue is tested here without another line.
"""

from __future__ import annotations

import hashlib

import pytest
from coresident.actors.work import SaveWork, StepKind
from coresident.policies.catalog import CATALOG, ORDERING
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_run import Decide, Generate, Prepare, own_tokens, play, workloads

EVERY = [(kind, name) for kind, names in sorted(CATALOG.items()) for name in sorted(names)]
SEGMENTS = 4


def check_ends(watch, workload):
    """Every request was accepted and ended once: decisions and generations with all that they asked for."""
    names = {f"r{index}": item for index, item in enumerate(workload)}
    assert watch.accepted.keys() == names.keys() == watch.ends.keys()
    for name, item in names.items():
        (end,) = watch.ends[name]
        if isinstance(item, Generate):
            assert (end.outcome, end.tokens) == ("completed", item.max_tokens)
            assert watch.tokens[name] == own_tokens(name, item.max_tokens)
        elif isinstance(item, Decide):
            assert end.outcome == "completed"


def check_progress(watch):
    """Whoever gave way had run a segment, no chunk was given up twice, and nothing ran more often than that needs."""
    segments = {}
    for run in watch.runs:
        assert run.end is not None
        if run.outcome == "suspended":
            assert run.measured.segments >= 1
        if run.step.work.kind is StepKind.PREFILL and run.measured is not None:
            segments[run.step.step] = segments.get(run.step.step, 0) + 1
    assert all(count == 1 for count in watch.drops.values())
    # A step with so many segments can't have had the device more often, once more after it was given up.
    assert all(grants <= SEGMENTS * (1 + watch.drops[step]) for step, grants in segments.items())


@pytest.mark.parametrize(("kind", "name"), EVERY)
@given(workload=workloads(), tight=st.booleans())
@settings(max_examples=8, deadline=None)
def test_everything_ends_once_with_its_own_tokens_and_nothing_stays_charged(kind, name, workload, tight):
    """The host is checked to be idle and its ledger to be at zero where the workload is played."""
    watch = play(workload, tight, **{kind: name})
    check_ends(watch, workload)
    check_progress(watch)


@pytest.mark.parametrize("name", sorted(ORDERING))
@given(workload=workloads(most=8), tight=st.booleans())
@settings(max_examples=4, deadline=None)
def test_two_runs_are_equal_to_the_byte(name, workload, tight):
    digests = {
        hashlib.sha256("\n".join(play(workload, tight, keep=True, ordering=name).deliveries).encode()).hexdigest()
        for _ in range(2)
    }
    assert len(digests) == 1


@pytest.mark.parametrize("name", sorted(ORDERING))
@given(workload=workloads(), which=st.integers(0, 100), later=st.integers(0, 150))
@settings(max_examples=8, deadline=None)
def test_a_cancel_costs_one_more_step_and_touches_nobody_else(name, workload, which, later):
    which %= len(workload)
    watch = play(workload, ordering=name, cancel=(which, later))
    cancelled, whole = f"r{which}", play(workload, ordering=name)
    at = (workload[which].at + later) * 1_000_000
    after = [
        r for r in watch.runs if cancelled in r.requests and r.start > at and not isinstance(r.step.work, SaveWork)
    ]
    assert after == []
    running = [r for r in watch.runs if cancelled in r.requests and r.start <= at < r.end]
    assert len(running) <= 1
    answered = {f"r{index}" for index, item in enumerate(workload) if not isinstance(item, Prepare)}
    for request in answered - {cancelled}:
        (end,), (alone,) = watch.ends[request], whole.ends[request]
        assert end.outcome == alone.outcome
        assert watch.tokens.get(request) == whole.tokens.get(request)
        assert getattr(end, "scores", None) == getattr(alone, "scores", None)
    assert len(watch.ends[cancelled]) == 1


@given(workload=workloads())
@settings(max_examples=6, deadline=None)
def test_answers_do_not_depend_on_the_ordering(workload):
    """Nor on what shares the device: each has what it has alone, as is checked of every run above."""
    answers = []
    for name in sorted(ORDERING):
        watch = play(workload, ordering=name)
        scores = {r: end.scores for r, (end,) in watch.ends.items() if hasattr(end, "scores")}
        answers.append((watch.tokens, scores))
    assert all(answer == answers[0] for answer in answers)
