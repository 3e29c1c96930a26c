"""The bounds that single ordering policies state, over random clients on one device: they are kept."""

from __future__ import annotations

from fractions import Fraction

from coresident.policies.catalog import resolve
from hypothesis import given, settings
from hypothesis import strategies as st
from one_device import MS, Client, Device, Request
from random_clients import (
    DECISION,
    FOREGROUND,
    LOWER,
    PREPARATION,
    UTILITY,
    clients,
    longest_request,
    longest_segment,
    longest_step,
    no_charge,
    of,
    requests,
    saturated,
    times,
)

KINDS = (DECISION, FOREGROUND)
WEIGHTS = {DECISION: 4, FOREGROUND: 2, UTILITY: 1}


@given(group=clients(most=8), late=st.booleans(), relative=st.tuples(*[st.sampled_from([1, 20, 200])] * 3))
@settings(max_examples=40, deadline=None)
def test_edf_gives_a_first_segment_within_the_stated_time(group, late, relative):
    parameters = dict(zip(("decision_ms", "foreground_ms", "utility_ms"), relative, strict=True))
    device = Device(resolve("ordering", "edf", **parameters), late=late).run(group)
    others = of(group, DECISION, *LOWER)
    unit = max(longest_step(others), longest_request(of(group, DECISION)))
    for step, wait in device.waits:
        if step.work_class is not PREPARATION:
            bound = relative[step.work_class] * MS + (len(others) - 1) * unit + longest_segment(group)
            assert wait <= bound


@given(group=clients((FOREGROUND,)), late=st.booleans(), horizon=st.sampled_from([1, 20, 200]))
@settings(max_examples=40, deadline=None)
def test_shortest_remaining_overtakes_a_long_one_within_its_horizon_only(group, late, horizon):
    device = Device(resolve("ordering", "shortest_remaining", horizon_ms=horizon), late=late).run(group)
    bound = horizon * MS + (len(group) - 1) * longest_step(group)
    assert max(wait for _, wait in device.waits) <= bound


@given(group=clients((DECISION, DECISION, FOREGROUND, UTILITY)), late=st.booleans(), busy=st.booleans())
@settings(max_examples=40, deadline=None)
def test_weighted_fair_gives_a_segment_within_the_stated_time(group, late, busy):
    group = saturated(group) if busy else group
    weights = {k.label: w for k, w in WEIGHTS.items()}
    device = Device(resolve("ordering", "weighted_fair", **weights), late=late).run(group)
    decisions = of(group, DECISION)
    d, q, c = longest_request(decisions), len(decisions), longest_segment(group)
    for k, since, until in device.gaps:
        if k in LOWER:
            o = UTILITY if k is FOREGROUND else FOREGROUND
            grants = {s.granted for s in device.segments if s.work_class is o and s.end > since and s.start < until}
            share = Fraction(WEIGHTS[DECISION] + WEIGHTS[o], WEIGHTS[k]) * longest_step(of(group, k))
            assert until - since <= share + longest_step(of(group, o)) + d + c + (len(grants) + 1) * q * d


def service(device, work_class, until):
    return sum(s.end - s.start for s in device.segments if s.work_class is work_class and s.end <= until)


@given(
    foreground=st.lists(requests(FOREGROUND, no_charge), min_size=1, max_size=12),
    utility=st.lists(requests(UTILITY, no_charge), min_size=1, max_size=12),
    back=st.integers(0, 60),
)
@settings(max_examples=40, deadline=None)
def test_weighted_fair_gives_two_busy_classes_their_weights_from_any_time_on(foreground, utility, back):
    """Utility comes, or comes back, when foreground has had the device for a while."""
    group = [
        Client("f", FOREGROUND, tuple(foreground)),
        Client("u", UTILITY, tuple(utility), start=back * MS),
    ]
    device = Device(resolve("ordering", "weighted_fair", foreground=2, utility=1)).run(group)
    last = min(max(s.end for s in device.segments if s.work_class is k) for k in LOWER)
    both = [t for s in device.segments for t in (s.start, s.end) if back * MS <= s.start and s.end <= last]
    differences = [Fraction(service(device, FOREGROUND, t), 2) - service(device, UTILITY, t) for t in both]
    longest = Fraction(longest_step(group[:1]), 2) + longest_step(group[1:])
    assert not both or max(differences) - min(differences) <= longest


def test_weighted_fair_charges_nobody_for_idle_time():
    """Utility ran for 1 ms and then the device was idle: it is not taken to have had 500 ms."""
    early = Client("e", UTILITY, (Request(((MS,),)),))
    both = [Client(k.label, k, (Request(((MS,),)),) * 100, start=500 * MS) for k in LOWER]
    device = Device(resolve("ordering", "weighted_fair")).run([early, *both])
    first = min(s.start for s in device.segments if s.request == "utility/0")
    assert first <= (500 + 3 + 1) * MS


def test_weighted_fair_holds_a_storm_of_decisions_against_none_that_come_later():
    """While many decisions wait, each segment of other work is followed by all of them; one client has its share."""
    storm = [Client(f"s{i}", DECISION, (Request(((5 * MS,),)),) * 40) for i in range(4)]
    later = Client("d", DECISION, (Request(((MS,),)),) * 100, start=840 * MS)
    busy = Client("f", FOREGROUND, (Request(((MS,),)),) * 400)
    device = Device(resolve("ordering", "weighted_fair", decision=8, foreground=2)).run([*storm, later, busy])
    since = max(device.arrived["d/0"], *(device.ended[f"s{i}/39"] for i in range(4)))
    until = device.ended["d/99"]
    had = [
        sum(s.end - s.start for s in device.segments if s.work_class is k and since <= s.start < until) for k in KINDS
    ]
    assert had[0] >= 3.5 * had[1]


@given(segment=times, weights=st.tuples(*[st.integers(1, 8)] * 2))
@settings(max_examples=20, deadline=None)
def test_weighted_fair_divides_a_long_time_by_weight(segment, weights):
    group = [Client(k.label, k, (Request(((segment,),)),) * 200) for k in LOWER]
    named = {k.label: weight for k, weight in zip(LOWER, weights, strict=True)}
    device = Device(resolve("ordering", "weighted_fair", **named)).run(group)
    until = min(max(s.end for s in device.segments if s.work_class is k) for k in LOWER)
    had = [Fraction(service(device, k, until), weight) for k, weight in zip(LOWER, weights, strict=True)]
    assert abs(had[0] - had[1]) <= sum(Fraction(segment, weight) for weight in weights)
