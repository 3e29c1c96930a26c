"""The device controller: one grant at a time, and charges that return."""

from __future__ import annotations

import pytest
from coresident.actors.device import DeviceController
from coresident.actors.effects import Report, RunGrant, Send
from coresident.actors.errors import BackendFault, BudgetExceeded, DeviceLost
from coresident.actors.events import ChargeExceeded, Granted, Released
from coresident.actors.memory.ledger import WORKSPACE, Ledger
from coresident.actors.messages import (
    Failed,
    Finished,
    GrantEnded,
    Settled,
    StepDone,
    StepRefused,
    SubmitStep,
    Suspended,
    Withdrawn,
    WithdrawStep,
)
from coresident.actors.queue import hold
from coresident.actors.work import LoadWork, Measured, PrefillWork, StepRequest, StepResult, WarmupWork
from coresident.policies.catalog import ORDERING, resolve
from coresident.policies.ordering.fifo import fifo
from coresident.policies.views import WorkClass

from support.bench_host import MS, open_bench
from support.promises import check_nothing_twice, check_promises

PROMPT = tuple(range(1, 60))
USED = Measured(0, 1, 1, 1, 1)


def controller(partition=100, ordering=None):
    ledger = Ledger(partition)
    ledger.reserve({WORKSPACE: partition})
    return DeviceController(ledger, ordering or resolve("ordering", "strict")), ledger


def step(name, charge=0, **fields):
    fields = {"work": WarmupWork("m"), "work_class": WorkClass.FOREGROUND, "request": name} | fields
    return StepRequest(step=name, owner="me", charge=charge, bound_ns=0, request_arrived=0, **fields)


def granted(effects):
    return [e.grant for e in effects if isinstance(e, RunGrant)]


def told(effects):
    return [e.message for e in effects if isinstance(e, Send) and e.to == "me"]


def test_a_withdrawn_grant_is_measured_as_any_other():
    device, _ = controller()
    device.handle(SubmitStep(step("a", 10)), 0)
    device.handle(WithdrawStep("a"), 1)
    used = Measured(11, 40, 2, 30, 40)
    effects = device.handle(GrantEnded(1, Withdrawn(used)), 2)
    reports = [e.event for e in effects if isinstance(e, Report)]
    assert reports == [ChargeExceeded("a", 10, 11), Released(1, "a", "withdrawn", used)]
    assert device.statistics().exceeded == 1


@pytest.mark.parametrize("ordering", sorted(ORDERING))
def test_R8_never_two_steps_inside(ordering):
    """Of many that would fit together one runs; the next is granted when the owner of the last was heard."""
    device, _ = controller(ordering=resolve("ordering", ordering))
    grants = [g for n in range(5) for g in granted(device.handle(SubmitStep(step(f"s{n}", 10)), n))]
    assert [g.step.step for g in grants] == ["s0"]
    assert granted(device.handle(GrantEnded(1, Finished(StepResult(), USED)), 6)) == []
    (grant,) = granted(device.handle(Settled("s0"), 6))
    assert grant.step.step == "s1"


ENDS = {
    "finished": Finished(StepResult(), USED),
    "failed": Failed(BackendFault("broken")),
    "withdrawn": Withdrawn(USED),
    "lost": Failed(DeviceLost("gone"), sticky=True),
}


@pytest.mark.parametrize("outcome", ENDS.values(), ids=ENDS.keys())
def test_R9_workspace_is_charged_for_a_step_and_returned_however_it_ends(outcome):
    device, ledger = controller()
    device.handle(SubmitStep(step("a", 70)), 0)
    assert ledger.available(WORKSPACE) == 30
    device.handle(SubmitStep(step("b", 70)), 0)
    assert ledger.available(WORKSPACE) == 30
    (done, *rest) = told(device.handle(GrantEnded(1, outcome), 1))
    assert ledger.available(WORKSPACE) == 100
    assert isinstance(done, StepDone)
    assert bool(rest) == (outcome is ENDS["lost"])


def test_R9_a_suspended_step_keeps_its_charge_until_it_is_given_up():
    device, ledger = controller()
    device.handle(SubmitStep(step("a", 70)), 0)
    device.handle(SubmitStep(step("d", 10, work_class=WorkClass.DECISION)), 1)
    device.handle(GrantEnded(1, Suspended(USED)), 2)
    assert ledger.available(WORKSPACE) == 20
    (done,) = told(device.handle(WithdrawStep("a"), 3))
    assert done == StepDone("a", Withdrawn(), settle=False)
    assert ledger.available(WORKSPACE) == 90


def test_R9_a_step_that_can_never_fit_is_refused_with_the_numbers():
    device, ledger = controller()
    (done,) = told(device.handle(SubmitStep(step("a", 101)), 0))
    assert isinstance(done.outcome, StepRefused)
    assert done.outcome.error.details["asked"] == 101
    assert done.outcome.error.details["available"] == 100
    assert ledger.available(WORKSPACE) == 100


def test_an_exact_fit_waits_for_a_late_release():
    device, _ = controller()
    device.handle(SubmitStep(step("a", 1)), 0)
    device.handle(SubmitStep(step("b", 100)), 0)
    device.handle(GrantEnded(1, Finished(StepResult(), USED)), 1)
    (grant,) = granted(device.handle(Settled("a"), 2))
    assert grant.step.step == "b"


def test_of_two_loads_in_one_instant_the_one_that_fits_is_admitted():
    ledger = Ledger(62)
    device = DeviceController(ledger, fifo())
    loads = [step(n, work=LoadWork(n), reserves=((f"weights/{n}", size),)) for n, size in (("a", 42), ("b", 32))]
    first, second = [device.handle(SubmitStep(load), 0) for load in loads]
    assert granted(first)
    assert not granted(second)
    (refused,) = told(second)
    assert isinstance(refused.outcome.error, BudgetExceeded)
    device.handle(GrantEnded(1, Failed(BackendFault("no such file"))), 1)
    assert ledger.reserved == 0


def test_a_refused_step_holds_nothing():
    ledger = Ledger(100)
    wrong = step("a", reserves=(("kv", 40),), keeps=("retained", "prefix/1", 10))
    assert isinstance(hold(ledger, wrong), BudgetExceeded)
    assert ledger.reserved == 0


def test_a_failure_in_the_third_chunk_leaves_nothing_charged():
    host = open_bench()
    request = host.generate(PROMPT, 5)
    host.run(until=lambda: len([s for s in host.device.finished if isinstance(s.work, PrefillWork)]) == 2)
    host.device.inject = Failed(BackendFault("chunk 3 is broken"))
    host.run()
    assert host.ends[request].outcome == "failed"
    assert host.ends[request].error == BackendFault("chunk 3 is broken")
    assert host.ledger.statistics().accounts[WORKSPACE].used == 0
    again = host.generate(PROMPT, 5)
    host.run()
    assert host.ends[again].outcome == "completed"
    check_promises(host)
    host.close()


def test_a_step_that_measures_more_than_its_charge_is_reported():
    host = open_bench()
    host.device.excess = 7
    request = host.generate(PROMPT[:4], 1)
    host.run()
    (fault,) = host.exceeded()
    assert (fault.charge, fault.measured) == (404, 411)
    assert host.controller.statistics().exceeded == 1
    assert host.ends[request].outcome == "completed"


def test_preempted_work_resumes_where_it_was():
    """A chunk of 8 segments is stopped after every second one, and each runs once."""
    host = open_bench(prefill_segments=8)
    request = host.generate(PROMPT[:8], 1)
    host.settle()
    for _ in range(3):
        host.segment()
        host.decide([[1]])
        host.settle()
        host.segment()
        host.run(until=lambda: host.device.running.grant.step.request == request)
    host.run()
    chunk = [s for s in host.device.segments if s.step.request == request and isinstance(s.step.work, PrefillWork)]
    assert len(chunk) == 8
    assert host.controller.statistics().suspensions == 3
    check_nothing_twice(host)
    check_promises(host)


def test_a_dropped_chunk_is_reported_with_its_own_grant():
    """A decision that fits runs beside the suspended chunk, and then one that doesn't."""
    host = open_bench(ordering="aging", workspace=700, rows_per_slice=3)
    host.generate(PROMPT, 1)
    host.settle()
    host.segment()
    host.decide([[1]])
    host.settle()
    host.segment()
    host.settle()
    host.decide([[1, 2], [3], [4]])
    host.run()
    (dropped,) = [e for e in host.events if isinstance(e, Released) and e.outcome == "dropped"]
    (grant, *_) = [e.grant for e in host.events if isinstance(e, Granted) and e.step == dropped.step]
    assert dropped.grant == grant


def test_a_lost_device_takes_a_suspended_chunk_with_it():
    host = open_bench()
    request = host.generate(PROMPT, 4)
    host.settle()
    host.segment()
    host.decide([[1, 2]])
    host.settle()
    host.segment()
    host.settle()
    assert host.device.suspended
    host.device.inject = Failed(DeviceLost("gone"), sticky=True)
    host.run()
    assert not host.device.suspended
    assert host.ledger.statistics().accounts[WORKSPACE].used == 0
    assert host.ends[request].reason == "DeviceLost"
    host.close()


def test_of_two_that_arrive_at_an_idle_device_neither_waits_for_ever():
    host = open_bench(slots=1)
    host.generate(PROMPT, 3)
    host.run()
    both = [host.generate((n, *PROMPT), 3) for n in (70, 80)]
    host.run()
    assert [host.ends[r].outcome for r in both] == ["completed"] * 2


@pytest.mark.parametrize("ordering", sorted(ORDERING))
def test_alternating_conversations_have_a_bounded_wait(ordering):
    """A B A A C A B C on one slot: each waits for those before it, and for nobody twice."""
    host = open_bench(ordering=ordering, slots=1, context=400)
    prompts = {"A": (1, *PROMPT), "B": (2, *PROMPT), "C": (3, *PROMPT)}
    order = [host.generate(prompts[letter], 3) for letter in "ABAACABC"]
    host.run()
    assert list(host.ends) == order
    longest = max(sum(s.step.request == r for s in host.device.segments) for r in order)
    assert len(host.device.segments) <= 8 * longest + 20
    check_promises(host)


def test_a_stale_end_of_a_grant_changes_nothing():
    device, ledger = controller()
    device.handle(SubmitStep(step("a", 70)), 0)
    assert device.handle(GrantEnded(7, ENDS["finished"]), 1) == []
    assert ledger.available(WORKSPACE) == 30
    assert device.statistics().state == "running"


def test_statistics_count_what_happened():
    host = open_bench()
    host.generate(PROMPT, 9)
    host.settle()
    host.segment()
    host.decide([[1]])
    host.run()
    view = host.controller.statistics()
    assert (view.state, view.waiting) == ("idle", 0)
    assert view.grants == sum(isinstance(e, Granted) for e in host.events)
    assert (view.yields, view.suspensions) == (1, 1)
    assert view.longest_segment_ns == MS
