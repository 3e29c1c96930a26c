"""Workspace for a chosen step: which suspended chunks are dropped, and when a running step goes on."""

from __future__ import annotations

import attrs
from coresident.policies.ordering.room import give_way, make_room
from coresident.policies.views import Choice, OrderingView, StepView, WorkClass

DECISION, FOREGROUND, UTILITY, PREPARATION = WorkClass


def step(name, work_class, submitted=0, charge=0, **fields):
    return StepView(name, name, work_class, submitted, submitted, charge, bound_ns=10, **fields)


def chunk(name, work_class, submitted=0, charge=0, **fields):
    return step(name, work_class, submitted, charge, suspended=True, **fields)


def room(waiting, free, target):
    view = OrderingView(10, tuple(waiting), None, free)
    return make_room(view, next(s for s in waiting if s.step == target))


def test_make_room_drops_nothing_for_what_fits_or_was_suspended_itself():
    waiting = [
        chunk("p", PREPARATION, charge=50),
        step("d", DECISION, charge=20),
        chunk("f", FOREGROUND, charge=90),
    ]
    assert room(waiting, 20, "d") == Choice("d")
    assert room(waiting, 0, "f") == Choice("f")


def test_make_room_drops_the_least_urgent_then_the_youngest_and_no_more_than_needed():
    waiting = [
        chunk("f", FOREGROUND, 1, charge=50),
        chunk("u-old", UTILITY, 1, charge=50),
        chunk("u-young", UTILITY, 2, charge=50),
        chunk("p", PREPARATION, 1, charge=10),
        step("d", DECISION, 3, charge=60),
    ]
    assert room(waiting, 55, "d") == Choice("d", ("p",))
    assert room(waiting, 10, "d") == Choice("d", ("u-young",))
    assert room(waiting, 0, "d") == Choice("d", ("p", "u-young"))


def test_make_room_never_drops_equal_or_more_urgent_work_or_a_chunk_twice():
    equal = [chunk("g", FOREGROUND, 1, charge=50), step("f", FOREGROUND, 2, charge=60)]
    assert room(equal, 20, "f") == Choice("g")
    above = [chunk("f", FOREGROUND, 1, charge=50), step("u", UTILITY, 2, charge=60)]
    assert room(above, 20, "u") == Choice("f")
    twice = [chunk("f", FOREGROUND, 1, charge=50, drops=1), step("d", DECISION, 2, charge=60)]
    assert room(twice, 20, "d") == Choice("f")


def test_make_room_drops_nothing_when_that_would_not_be_enough():
    waiting = [
        chunk("p", PREPARATION, 1, charge=10),
        chunk("f", FOREGROUND, 1, charge=50, drops=1),
        step("d", DECISION, 3, charge=60),
    ]
    assert room(waiting, 0, "d") == Choice("f")


def test_make_room_leaves_what_fits_nowhere_to_the_controller():
    assert room([step("d", DECISION, charge=60)], 20, "d") == Choice("d")


def test_a_running_step_goes_on_when_its_yielding_would_be_in_vain():
    urgent = step("d", DECISION, charge=60)
    running = step("f", FOREGROUND, charge=50, drops=1)
    assert give_way(OrderingView(10, (urgent,), running, 20), urgent) == Choice("f")
    assert give_way(OrderingView(10, (urgent,), running, 60), urgent) == Choice("d")
    assert give_way(OrderingView(10, (urgent,), attrs.evolve(running, drops=0), 20), urgent) == Choice("d")
    as_urgent = attrs.evolve(running, drops=0, work_class=DECISION)
    assert give_way(OrderingView(10, (urgent,), as_urgent, 20), urgent) == Choice("f")
    assert give_way(OrderingView(10, (urgent,), as_urgent, 60), urgent) == Choice("d")
