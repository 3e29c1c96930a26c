"""The bounds that ordering policies state, on the virtual host, from each run's own longest segment, step and request.

An ordering that joins the catalogue has to state here how long a class may wait under it.
"""

from __future__ import annotations

import pytest
from coresident.policies.catalog import ORDERING
from coresident.policies.views import WorkClass
from hypothesis import given, settings
from watched_run import Decide, play, workloads

DECISION, FOREGROUND, UTILITY, PREPARATION = WorkClass
MS = 1_000_000


class Measures:
    """Of one run: ``c``, ``U``, ``D`` and ``Q`` as the policies' docstrings have them, and the most open requests."""

    def __init__(self, watch, workload):
        ran = [run for run in watch.runs if run.measured is not None and run.step.owner != "supervisor"]
        self.watch = watch
        self.segment = max((run.measured.longest_segment_ns for run in ran), default=0)
        self.step = {k: max((r.measured.step_ns for r in ran if r.work_class is k), default=0) for k in WorkClass}
        self.bound = max((step.bound_ns for step in watch.steps), default=0)
        decisions = [f"r{n}" for n, item in enumerate(workload) if isinstance(item, Decide)]
        self.decisions = len(decisions)
        self.decision = max(
            (sum(r.measured.device_ns for r in ran if r.step.request == name) for name in decisions), default=0
        )
        self.open = len(workload)
        self.total = sum(run.measured.device_ns for run in ran)
        self.unit = max(self.decision, self.step[FOREGROUND], self.step[UTILITY])

    def by_class(self, k, since, until):
        first = max(self.segment, self.bound) / 0.1
        return first + self.unit + 2 * (self.decisions * self.decision + self.segment)

    def deadline(self, k, since, until):
        return self.by_class(k, since, until) + 2 * 2000 * MS

    def aging(self, k, since, until):
        ahead = sum(
            r.end > since and r.start < until and r.work_class in (FOREGROUND, UTILITY) for r in self.watch.runs
        )
        segments = (ahead + self.open) * 8
        return k * 250 * MS + self.decision + (segments + 1) * (self.decisions * self.decision + self.segment)

    def edf(self, k, since, until):
        return (100, 1000, 10_000)[k] * MS + self.open * self.unit + self.segment

    def weighted_fair(self, k, since, until):
        other, weights = UTILITY if k is FOREGROUND else FOREGROUND, (8, 3, 1)
        grants = sum(r.work_class is other and r.end > since and r.start < until for r in self.watch.runs)
        share = (weights[DECISION] + weights[other]) * self.step[k] / weights[k]
        passed = (grants + 1) * self.decisions * self.decision
        return share + self.step[other] + self.decision + self.segment + passed

    def fifo(self, k, since, until):
        return self.total


BOUNDS = {
    "strict": Measures.by_class,
    "shortest_remaining": Measures.by_class,
    "deadline": Measures.deadline,
    "aging": Measures.aging,
    "edf": Measures.edf,
    "weighted_fair": Measures.weighted_fair,
    "fifo": Measures.fifo,
}


def test_every_ordering_has_a_bound_here():
    assert BOUNDS.keys() == ORDERING.keys()


def check_decisions(watch, workload):
    """A decision waits for one segment of other work, and its request then runs whole."""
    for index, item in enumerate(workload):
        if isinstance(item, Decide):
            own = [n for n, run in enumerate(watch.runs) if f"r{index}" in run.requests]
            arrived = watch.accepted[f"r{index}"]
            before = [run for run in watch.runs[: own[0]] if run.end > arrived or run.start >= arrived]
            assert sum(run.work_class is not DECISION for run in before) <= 1
            assert own == list(range(own[0], own[-1] + 1))


def check_preparation(watch):
    """It begins only when nothing else waits: whoever comes then waits for its segment and no more."""
    preparing = [run for run in watch.runs if run.work_class is PREPARATION and run.start != run.end]
    for k, since, until in watch.gaps:
        if k is not PREPARATION:
            assert sum(since < run.end and run.start < until for run in preparing) <= 1


@pytest.mark.parametrize("name", sorted(ORDERING))
@given(workload=workloads())
@settings(max_examples=12, deadline=None)
def test_R10_R51_every_class_waits_as_its_ordering_says(name, workload):
    watch = play(workload, ordering=name)
    measures = Measures(watch, workload)
    lower = (DECISION, FOREGROUND, UTILITY) if name in ("edf", "fifo") else (FOREGROUND, UTILITY)
    for k, since, until in watch.gaps:
        if k in lower:
            assert until - since <= BOUNDS[name](measures, k, since, until)
    if name != "fifo":
        check_preparation(watch)
    if name not in ("edf", "fifo"):
        check_decisions(watch, workload)
