"""The bounds that ordering policies state are as tight as said: a constructed worst case comes within one segment."""

from __future__ import annotations

import pytest
from coresident.policies.catalog import resolve
from one_device import MS, Client, Device, Request
from random_clients import BY_CLASS, DECISION, DECISIONS_FIRST, FOREGROUND, PREPARATION, UTILITY

SHORT = Request(((MS,),))


def wait_of(device, request):
    """Of a request's first step, or of its longest waiting one with a client's name alone."""
    waits = [wait for view, wait in device.waits if view.request.startswith(request)]
    return waits[0] if "/" in request else max(waits)


def of_class(device, work_class):
    return max(until - since for k, since, until in device.gaps if k is work_class)


@pytest.mark.parametrize("other", [FOREGROUND, UTILITY, PREPARATION])
@pytest.mark.parametrize("name", DECISIONS_FIRST)
def test_a_decision_waits_for_one_whole_segment_and_the_decisions_before_it(name, other):
    busy = Client("b", other, (Request(((20 * MS,) * 3,)),))
    before = [Client(f"e{i}", DECISION, (Request(((5 * MS,),)),), start=1) for i in range(3)]
    device = Device(resolve("ordering", name)).run([busy, *before, Client("d", DECISION, (SHORT,), start=2)])
    assert wait_of(device, "d/0") == 20 * MS + 3 * 5 * MS - 2


@pytest.mark.parametrize("name", BY_CLASS)
@pytest.mark.parametrize("share", [0.1, 0.25])
def test_a_share_is_waited_for_as_long_as_it_takes_to_be_owed(name, share):
    """Its last segment was long, and decisions never rest."""
    lower = Client("f", FOREGROUND, (Request(((20 * MS,), (20 * MS,), (20 * MS,))),))
    device = Device(resolve("ordering", name, share=share)).run([lower, Client("d", DECISION, (SHORT,) * 500)])
    waited = of_class(device, FOREGROUND)
    assert 20 * MS / share - 20 * MS <= waited <= 20 * MS / share + MS + 2 * 21 * MS


def test_aging_lets_a_class_wait_for_its_whole_rise():
    group = [Client("u", UTILITY, (SHORT,)), Client("d", DECISION, (SHORT,) * 300)]
    device = Device(resolve("ordering", "aging", rate=10)).run(group)
    assert 2 * 100 * MS <= wait_of(device, "u/0") <= 2 * 100 * MS + MS


def test_edf_lets_work_pass_until_the_due_and_then_what_waits():
    """Three clients whose work is due at once, and work that is due in 100 ms."""
    urgent = [Client(f"d{i}", DECISION, (Request(((5 * MS,),)),) * 60) for i in range(3)]
    policy = resolve("ordering", "edf", decision_ms=1, utility_ms=100)
    device = Device(policy).run([*urgent, Client("u", UTILITY, (SHORT,))])
    assert 100 * MS + 3 * 5 * MS - 5 * MS <= wait_of(device, "u/0") <= 100 * MS + 3 * 5 * MS


def test_edf_promises_decisions_nothing_but_their_due():
    busy = Client("f", FOREGROUND, (Request(((5 * MS,),)),) * 60)
    policy = resolve("ordering", "edf", decision_ms=100, foreground_ms=1)
    device = Device(policy).run([busy, Client("d", DECISION, (SHORT,), start=1)])
    assert 100 * MS - 5 * MS <= wait_of(device, "d/0") <= 100 * MS + 5 * MS


def test_shortest_remaining_lets_short_ones_pass_for_a_whole_horizon():
    short = [Client(f"s{i}", FOREGROUND, (SHORT,) * 100) for i in range(3)]
    long = Client("l", FOREGROUND, (Request(((MS,),) * 200, chunk=False),))
    device = Device(resolve("ordering", "shortest_remaining", horizon_ms=50)).run([*short, long])
    bound = 50 * MS + 3 * MS
    assert bound - 2 * MS <= wait_of(device, "l/0") <= bound
    alone = Device(resolve("ordering", "strict")).run([*short, long])
    assert wait_of(alone, "l/0") == 3 * MS


def test_weighted_fair_lets_a_class_wait_for_what_its_last_step_cost():
    """Utility had 10 ms: foreground has three times as much before its next, and decisions eight times."""
    utility = Client("u", UTILITY, (Request(((10 * MS,), (MS,))),))
    foreground = Client("f", FOREGROUND, (SHORT,) * 300, start=1)
    device = Device(resolve("ordering", "weighted_fair")).run([utility, foreground])
    assert 3 * 10 * MS <= of_class(device, UTILITY) <= 3 * 10 * MS + MS
    decisions = Client("d", DECISION, (SHORT,) * 500, start=1)
    device = Device(resolve("ordering", "weighted_fair")).run([utility, foreground, decisions])
    share = (8 + 3) * 10 * MS
    assert share <= of_class(device, UTILITY) <= share + 3 * MS


def test_fifo_lets_a_decision_wait_for_the_whole_request_before_it():
    busy = Client("f", FOREGROUND, (Request(((20 * MS,) * 5,) * 3),))
    device = Device(resolve("ordering", "fifo")).run([busy, Client("d", DECISION, (SHORT,), start=1)])
    assert wait_of(device, "d/0") == 3 * 5 * 20 * MS - 1
