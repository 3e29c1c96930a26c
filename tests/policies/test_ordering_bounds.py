"""What every shipped ordering policy promises, over random clients on one device."""

from __future__ import annotations

import itertools

import pytest
from coresident.policies.catalog import ORDERING, resolve
from hypothesis import given, settings
from hypothesis import strategies as st
from one_device import MS, Client, Device, Request
from random_clients import (
    BY_CLASS,
    DECISION,
    DECISIONS_FIRST,
    FOREGROUND,
    LOWER,
    PREPARATION,
    UTILITY,
    YIELDING,
    charges,
    clients,
    longest_request,
    longest_segment,
    longest_step,
    of,
    saturated,
    times,
)


@pytest.mark.parametrize("name", sorted(ORDERING))
@given(group=clients(charge=charges), late=st.booleans())
@settings(max_examples=25, deadline=None)
def test_every_request_ends_and_workspace_is_never_exceeded(name, group, late):
    device = Device(resolve("ordering", name), capacity=60, late=late).run(group)
    assert len(device.ended) == sum(len(c.requests) for c in group)
    for client in group:
        for index, request in enumerate(client.requests):
            ran = sum(s.end - s.start for s in device.segments if s.request == f"{client.name}/{index}")
            needed = sum(map(sum, request.steps))
            # A chunk may be dropped once in its life, and then runs again.
            again = needed if f"{client.name}/{index}" in device.drops else 0
            assert needed <= ran <= needed + again


@pytest.mark.parametrize("name", DECISIONS_FIRST)
@given(group=clients(), late=st.booleans())
@settings(max_examples=25, deadline=None)
def test_R10_a_decision_is_passed_by_one_segment_and_then_runs_whole(name, group, late):
    device = Device(resolve("ordering", name), late=late).run(group)
    for request, arrived in device.arrived.items():
        own = [s for s in device.segments if s.request == request and s.work_class is DECISION]
        if own:
            before = [s for s in device.segments if s.end > arrived and s.start < own[0].start]
            assert sum(s.work_class is not DECISION for s in before) <= 1
            span = [s for s in device.segments if own[0].start <= s.start <= own[-1].start]
            assert span == own


@pytest.mark.parametrize("name", YIELDING)
@given(group=clients(), late=st.booleans())
@settings(max_examples=25, deadline=None)
def test_R51_preparation_delays_other_work_by_at_most_one_segment(name, group, late):
    device = Device(resolve("ordering", name), late=late).run(group)
    for request, arrived in device.arrived.items():
        own = [s for s in device.segments if s.request == request and s.work_class is not PREPARATION]
        if own:
            before = [s for s in device.segments if s.end > arrived and s.start < own[0].start]
            assert sum(s.work_class is PREPARATION for s in before) <= 1


@pytest.mark.parametrize("name", BY_CLASS)
@given(
    group=clients((DECISION, DECISION, FOREGROUND, UTILITY)),
    late=st.booleans(),
    share=st.sampled_from([0.05, 0.1, 0.5]),
)
@settings(max_examples=25, deadline=None)
def test_a_lower_class_gets_a_segment_within_the_stated_time(name, group, late, share):
    group = saturated(group)
    slack_ms = 50
    parameters = {"share": share, "slack_ms": slack_ms} if name == "deadline" else {"share": share}
    device = Device(resolve("ordering", name, **parameters), late=late).run(group)
    lower = of(group, *LOWER)
    c, q = longest_segment(lower), len(of(group, DECISION))
    d = longest_request(of(group, DECISION))
    for work_class, since, until in device.gaps:
        if work_class in LOWER:
            first = max(c, longest_step(of(group, work_class)))
            unit = max(d, longest_step(lower))
            bound = first / share + unit + 2 * (q * d + c)
            assert until - since <= bound + (2 * slack_ms * MS if name == "deadline" else 0)


@given(
    group=clients((DECISION, DECISION, FOREGROUND, UTILITY)),
    late=st.booleans(),
    rate=st.sampled_from([4, 20, 1000]),
)
@settings(max_examples=25, deadline=None)
def test_aging_gives_a_first_segment_within_the_stated_time(group, late, rate):
    group = saturated(group)
    device = Device(resolve("ordering", "aging", rate=rate), late=late).run(group)
    lower, horizon = of(group, *LOWER), 10**9 // rate
    c, q = longest_segment(lower), len(of(group, DECISION))
    d = longest_request(of(group, DECISION))
    ahead = sum(max(len(s) for r in client.requests for s in r.steps) for client in lower)
    for work_class, since, until in device.gaps:
        if work_class in LOWER:
            assert until - since <= work_class * horizon + d + (ahead + 1) * (q * d + c)


@pytest.mark.parametrize("name", BY_CLASS)
@given(slices=st.integers(1, 3), share=st.sampled_from([0.1, 0.25]), segment=times)
@settings(max_examples=10, deadline=None)
def test_the_share_of_a_saturated_device_is_kept_from_both_sides(name, slices, share, segment):
    decisions = Client("d", DECISION, (Request(((5 * MS,),) * slices),) * 200)
    answer = Client("f", FOREGROUND, (Request(((segment,),) * 1000, chunk=False),))
    device = Device(resolve("ordering", name, share=share)).run([decisions, answer])
    until = max(end for request, end in device.ended.items() if request.startswith("d/"))
    busy = [s for s in device.segments if s.end <= until and s.work_class is FOREGROUND]
    # A claim is rounded up to a whole decision request.
    least = until / (segment / share + slices * 5 * MS)
    assert least - 1 <= len(busy) <= until * share / segment + 1


def after_idleness(name, idle):
    """Utility that was away for ``idle`` ms comes back with a chunk of 50 segments, and foreground never rests."""
    first = Client("early", UTILITY, (Request(((MS,),)),))
    back = Client("back", UTILITY, (Request(((MS,) * 50,)),), start=(idle + 5) * MS)
    busy = Client("f", FOREGROUND, (Request(((10 * MS,),)),) * (idle // 10 + 150))
    return Device(resolve("ordering", name)).run([first, back, busy])


@pytest.mark.parametrize("name", sorted(ORDERING))
@given(idle=st.integers(0, 3000))
@settings(max_examples=8, deadline=None)
def test_who_was_away_for_long_is_served_no_sooner_than_who_was_hardly_away(name, idle):
    """Two steps of foreground aside, one that may run when it comes, and one by which turns are rounded."""
    long, short = (
        [s.end - MS * away for s in after_idleness(name, away).segments if s.request == "back/0"] for away in (idle, 0)
    )
    assert all(later >= sooner - 20 * MS for later, sooner in zip(long, short, strict=True))


@pytest.mark.parametrize("name", BY_CLASS)
@given(idle=st.integers(0, 3000))
@settings(max_examples=15, deadline=None)
def test_idleness_saves_nothing_up(name, idle):
    """From its return the class gets no two segments in a row past foreground that waits."""
    segments = after_idleness(name, idle).segments
    past = [i for i, s in enumerate(segments) if s.request == "back/0" and FOREGROUND in s.waited]
    assert len(past) > 1
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(past))


@given(idle=st.integers(0, 3000))
@settings(max_examples=15, deadline=None)
def test_idleness_saves_nothing_up_with_aging(idle):
    """From its return the class waits its whole horizon before it precedes foreground."""
    device = after_idleness("aging", idle)
    past = [s for s in device.segments if s.request == "back/0" and FOREGROUND in s.waited]
    assert past
    assert min(s.granted for s in past) >= device.arrived["back/0"] + 250 * MS


@given(group=clients(), late=st.booleans())
@settings(max_examples=25, deadline=None)
def test_fifo_never_stops_a_step(group, late):
    device = Device(resolve("ordering", "fifo"), late=late).run(group)
    steps_run = len({s.granted for s in device.segments})
    assert steps_run == sum(len(r.steps) for c in group for r in c.requests)


@given(group=clients())
@settings(max_examples=25, deadline=None)
def test_fifo_serves_requests_in_order_of_arrival(group):
    device = Device(resolve("ordering", "fifo")).run(group)
    served = [device.arrived[s.request] for s in device.segments]
    assert served == sorted(served)
