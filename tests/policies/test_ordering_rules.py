"""Single decisions of the ordering policies: order, yielding, workspace. Scenarios from public reports are named."""

from __future__ import annotations

import itertools

import attrs
import pytest
from coresident.policies.catalog import ORDERING, resolve
from coresident.policies.views import Choice, OrderingView, StepView, WorkClass
from hypothesis import given, settings
from hypothesis import strategies as st
from one_device import MS, Client, Device, Request
from random_clients import BY_CLASS, DECISION, DECISIONS_FIRST, FOREGROUND, PREPARATION, UTILITY


def step(name, work_class, submitted=0, **fields):
    fields = {"request": name, "request_arrived": submitted, "charge": 0, "bound_ns": 10 * MS} | fields
    return StepView(name, work_class=work_class, submitted=submitted, **fields)


def chunk(name, work_class, submitted=0, **fields):
    return step(name, work_class, submitted, suspended=True, **fields)


def chosen(policy, waiting, running=None, free=0, at=100 * MS):
    return policy(OrderingView(at, tuple(waiting), running, free), None)[0].step


@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_the_next_grant_is_the_decisions_however_many_wait(name):
    crowd = [step(f"f{i}", FOREGROUND, i) for i in range(50)]
    assert chosen(resolve("ordering", name), [*crowd, step("d", DECISION, 60)], at=61) == "d"


@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_a_started_decision_goes_before_an_older_one(name):
    waiting = [step("old", DECISION, 1), step("begun", DECISION, 2, started=True)]
    assert chosen(resolve("ordering", name), waiting) == "begun"


@pytest.mark.parametrize("name", BY_CLASS)
def test_a_suspended_chunk_goes_on_before_other_work_of_its_class(name):
    waiting = [step("old", FOREGROUND, 1), chunk("begun", FOREGROUND, 2)]
    assert chosen(resolve("ordering", name), waiting) == "begun"


@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_preparation_only_when_nothing_else_waits(name):
    old = chunk("p", PREPARATION, 0)
    assert chosen(resolve("ordering", name), [old, step("u", UTILITY, 10**12)], at=10**12) == "u"
    assert chosen(resolve("ordering", name), [old]) == "p"


@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_a_running_step_yields_to_more_urgent_work_only(name):
    policy = resolve("ordering", name)
    running = step("f", FOREGROUND, 5)
    assert chosen(policy, [step("d", DECISION, 9)], running) == "d"
    assert chosen(policy, [step("g", FOREGROUND, 1), step("u", UTILITY, 1)], running) == "f"
    assert chosen(policy, [], running) == "f"
    assert chosen(policy, [step("d", DECISION, 1)], step("e", DECISION, 5)) == "e"
    assert chosen(policy, [step("u", UTILITY, 9)], step("p", PREPARATION, 1)) == "u"


def test_fifo_goes_by_arrival_and_never_yields():
    policy = resolve("ordering", "fifo")
    waiting = [step("d", DECISION, 2), step("f", FOREGROUND, 9, request_arrived=1)]
    assert chosen(policy, waiting) == "f"
    assert chosen(policy, waiting, step("p", PREPARATION, 3)) == "p"


def test_deadline_puts_the_earliest_due_first_within_a_class():
    policy = resolve("ordering", "deadline", slack_ms=50)
    soon = step("soon", FOREGROUND, 20 * MS, deadline=30 * MS)
    never = step("never", FOREGROUND, 10 * MS)
    far = step("far", FOREGROUND, 5 * MS, deadline=10**15)
    missed = step("missed", FOREGROUND, 40 * MS, deadline=1)
    assert chosen(policy, [never, far, soon]) == "soon"
    assert chosen(policy, [never, far]) == "far"
    assert chosen(policy, [missed, soon]) == "soon"
    assert chosen(policy, [step("u", UTILITY, 0, deadline=1), never]) == "never"


def test_edf_goes_by_due_whatever_the_class_and_a_deadline_makes_it_earlier_only():
    policy = resolve("ordering", "edf", decision_ms=10, foreground_ms=20, utility_ms=60)
    decision = step("d", DECISION, 55 * MS)
    old = step("u", UTILITY, 0)
    assert chosen(policy, [decision, old]) == "u"
    assert chosen(policy, [decision, step("u", UTILITY, 6 * MS)]) == "d"
    assert chosen(policy, [old, step("f", FOREGROUND, 45 * MS, deadline=10**15)]) == "u"
    assert chosen(policy, [old, step("f", FOREGROUND, 45 * MS, deadline=50 * MS)]) == "f"
    # One that was missed long ago is due at its submission, and so is the step that follows.
    missed = step("m", UTILITY, 58 * MS, deadline=1)
    assert chosen(policy, [missed, step("f", FOREGROUND, 37 * MS)]) == "f"
    assert chosen(policy, [missed, step("f", FOREGROUND, 39 * MS)]) == "m"
    slice_two = step("d", DECISION, 90 * MS, request_arrived=40 * MS)
    assert chosen(policy, [slice_two, step("f", FOREGROUND, 31 * MS)]) == "d"
    assert chosen(policy, [old], running=decision) == "u"
    assert chosen(policy, [decision], running=old) == "u"
    assert chosen(policy, [old], running=step("p", PREPARATION, 0)) == "u"


def test_aging_lets_waiting_work_precede_newer_urgent_work():
    policy = resolve("ordering", "aging", rate=10)
    fresh = step("f", FOREGROUND, 200 * MS)
    assert chosen(policy, [step("u", UTILITY, 101 * MS), fresh]) == "f"
    assert chosen(policy, [step("u", UTILITY, 99 * MS), fresh]) == "u"
    aged, decision = step("u", UTILITY, 0), step("d", DECISION, 201 * MS)
    assert chosen(policy, [aged, decision]) == "u"
    assert chosen(policy, [decision], running=aged) == "d"
    assert chosen(policy, [fresh], running=aged) == "u"
    assert chosen(policy, [fresh], running=step("u", UTILITY, 150 * MS)) == "f"
    assert chosen(policy, [aged, attrs.evolve(decision, passed=True)]) == "d"
    assert chosen(policy, [aged, attrs.evolve(decision, started=True)]) == "d"


@pytest.mark.parametrize("name", sorted(ORDERING))
def test_scenario_16_two_that_arrive_together_are_both_served(name):
    both = [Client(n, FOREGROUND, (Request(((MS, MS), (MS,))),), start=7 * MS) for n in "BC"]
    device = Device(resolve("ordering", name)).run([Client("A", FOREGROUND, (Request(((MS,),)),)), *both])
    assert {"A/0", "B/0", "C/0"} == device.ended.keys()


@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_scenario_21_29_streams_take_turns_and_a_cold_one_is_served_within_a_round(name):
    warm = [Client(n, FOREGROUND, (Request(((MS,),) * 40, chunk=False),)) for n in "ABC"]
    cold = Client("cold", FOREGROUND, (Request(((MS,),) * 5, chunk=False),), start=20 * MS)
    device = Device(resolve("ordering", name)).run([*warm, cold])
    starts = [s.start for s in device.segments if s.request == "cold/0"]
    assert starts[0] <= device.arrived["cold/0"] + 4 * MS
    assert all(later - earlier <= 4 * MS for earlier, later in itertools.pairwise(starts))


@pytest.mark.parametrize("segments", [8, 32, 128])
@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_scenario_22_23_a_long_prefill_costs_a_decision_one_segment_whatever_its_length(name, segments):
    prefill = Client("long", FOREGROUND, (Request(((20 * MS,) * segments,)),))
    asks = Client("d", DECISION, (Request(((5 * MS,),)),) * 10, start=3 * MS, think=33 * MS)
    device = Device(resolve("ordering", name)).run([prefill, asks])
    waits = [device.ended[f"d/{i}"] - device.arrived[f"d/{i}"] - 5 * MS for i in range(10)]
    assert max(waits) <= 20 * MS
    fifo = Device(resolve("ordering", "fifo")).run([prefill, asks])
    assert fifo.ended["d/0"] - fifo.arrived["d/0"] == 20 * MS * segments - 3 * MS + 5 * MS


@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_scenario_25_31_preparation_finishes_though_each_segment_is_interrupted_and_computes_nothing_twice(
    name,
):
    ahead = Client("p", PREPARATION, (Request(((4 * MS,) * 10,) * 3),))
    urgent = Client("f", FOREGROUND, (Request(((3 * MS,),)),) * 100, start=MS, think=MS)
    device = Device(resolve("ordering", name)).run([ahead, urgent])
    assert "p/0" in device.ended
    assert sum(s.request == "p/0" for s in device.segments) == 30


@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_scenario_26_with_no_room_left_the_urgent_class_still_goes(name):
    waiting = [chunk("p", PREPARATION, charge=80), step("d", DECISION, 5, charge=50)]
    view = OrderingView(10, tuple(waiting), None, free=0)
    assert resolve("ordering", name)(view, None)[0] == Choice("d", ("p",))


@pytest.mark.parametrize("name", sorted(ORDERING))
def test_scenario_27_not_only_the_first_in_order_is_tried(name):
    waiting = [step("d", DECISION, 5, charge=50), chunk("f", FOREGROUND, 6, charge=80, drops=1)]
    assert chosen(resolve("ordering", name), waiting, free=20, at=10) == "f"
    waiting = [step("d", DECISION, 5, charge=50), step("f", FOREGROUND, 6, charge=20)]
    assert chosen(resolve("ordering", name), waiting, free=20, at=10) == "f"


steps = st.builds(
    StepView,
    step=st.just(""),
    request=st.sampled_from("abcdef"),
    work_class=st.sampled_from(WorkClass),
    submitted=st.integers(0, 100),
    request_arrived=st.integers(0, 100),
    charge=st.integers(0, 50),
    bound_ns=st.integers(0, 50),
    deadline=st.none() | st.integers(0, 200),
    suspended=st.booleans(),
    started=st.booleans(),
    passed=st.booleans(),
    drops=st.integers(0, 1),
)


@pytest.mark.parametrize("name", sorted(ORDERING))
@given(
    views=st.lists(
        st.tuples(st.lists(steps, min_size=1, max_size=6), steps, st.integers(0, 60)), min_size=1, max_size=5
    )
)
@settings(max_examples=60, deadline=None)
def test_any_view_has_a_valid_answer_and_the_same_one_twice(name, views):
    policy, memory = resolve("ordering", name), None
    for at, (waiting, other, free) in enumerate(views, 100):
        named = tuple(attrs.evolve(s, step=str(i)) for i, s in enumerate(waiting))
        running = attrs.evolve(other, step="r", suspended=False)
        asked = OrderingView(at, named, running, free)
        choice, kept = policy(asked, memory)
        assert (choice.drop, kept) == ((), memory)
        assert choice.step in {"r", *(s.step for s in named)}
        view = OrderingView(at, named, None, free)
        before = hash(view)
        choice, kept = policy(view, memory)
        assert policy(view, memory) == (choice, kept)
        assert hash(view) == before
        by_name = {s.step: s for s in named}
        granted, dropped = by_name[choice.step], [by_name[d] for d in choice.drop]
        assert all(d.suspended and d.drops == 0 and d.work_class > granted.work_class for d in dropped)
        memory = kept


@pytest.mark.parametrize("name", BY_CLASS)
def test_a_claim_is_void_when_its_class_does_not_wait(name):
    """8 ms and 2 ms of decisions passed by, and 10 ms are a claim: owed if it waited on, not if it came anew."""
    policy = resolve("ordering", name, share=0.5)

    def last(third):
        memory = None
        for at, submitted in [(0, 0), (8, 0), (9, third), (11, 9)]:
            waiting = [step(f"d{at}", DECISION, at * MS)]
            if submitted is not None:
                waiting.append(step("u", UTILITY, submitted * MS))
            choice, memory = policy(OrderingView(at * MS, tuple(waiting), None, 0), memory)
        return choice.step

    assert last(0) == "u"
    assert last(None) == "d11"


def asked(policy, views):
    """The choice for the last of several views of a free device."""
    memory = None
    for at, waiting in views:
        choice, memory = policy(OrderingView(at * MS, tuple(waiting), None, 0), memory)
    return choice.step


@pytest.mark.parametrize("name", BY_CLASS)
def test_of_two_claims_the_larger_goes_first_also_against_the_most_urgent_class(name):
    policy = resolve("ordering", name, share=0.5)
    f, u = step("f", FOREGROUND, 0), step("u", UTILITY, 0)
    began = [(0, [step("d0", DECISION), u]), (20, [step("d1", DECISION, 19 * MS, passed=True), f, u])]
    newer = attrs.evolve(f, submitted=25 * MS)
    older = attrs.evolve(u, submitted=25 * MS)
    decision = step("d2", DECISION, 39 * MS)
    assert asked(policy, [*began, (40, [decision, newer, u])]) == "u"
    assert asked(policy, [*began, (40, [newer, u])]) == "u"
    began = [(0, [step("d0", DECISION), f]), (20, [step("d1", DECISION, 19 * MS, passed=True), f])]
    assert asked(policy, [*began, (40, [decision, f, older])]) == "f"
    assert asked(policy, [*began, (40, [f, older])]) == "f"


@pytest.mark.parametrize("name", BY_CLASS)
def test_time_without_waiting_work_is_not_taken_for_a_segment(name):
    """Foreground runs alone and the device idles; a claim is still measured by the step of 10 ms."""
    policy = resolve("ordering", name, share=0.5)
    alone = (0, [step("f0", FOREGROUND)])
    begun = (5000, [step("d0", DECISION, 5000 * MS), step("f1", FOREGROUND, 5000 * MS)])
    later = (5010, [step("d1", DECISION, 5010 * MS), step("f1", FOREGROUND, 5000 * MS)])
    assert asked(policy, [alone, begun, later]) == "f1"
