"""Readiness that tells the truth: loading, faults, retry and repair, the end."""

from __future__ import annotations

import pytest
from coresident.actors.effects import Send
from coresident.actors.errors import BackendFault, BudgetExceeded, Closed, DeviceLost, InvalidRequest
from coresident.actors.messages import Close, DeviceFault, Drained, Failed, Recover, ResetDevice, Start, StepDone
from coresident.actors.supervisor import ModelSetup, Supervisor
from coresident.actors.work import LoadWork, StepKind

from support.bench_host import BenchHost, open_bench
from support.bench_setup import Bench
from support.promises import check_promises

PROMPT = tuple(range(1, 42))
LOST = Failed(DeviceLost("the bench lost it"), sticky=True)


def states(host):
    return [event.state for event in host.readiness()]


def loads(host):
    return [s.work for s in host.device.finished if isinstance(s.work, LoadWork)]


def lose(host):
    """The device goes in the middle of a prefill; the request that was on it."""
    request = host.generate((9, *PROMPT), 4)
    host.settle()
    host.device.inject = LOST
    host.run()
    return request


def test_R1_weights_of_both_roles_are_charged_and_loaded_once():
    host = open_bench(shared=True)
    request, decision = host.generate(PROMPT, 3), host.decide([[1, 2]])
    host.run()
    accounts = host.ledger.statistics().accounts
    assert [(n, a.reserved) for n, a in accounts.items() if n.startswith("weights")] == [("weights/m", 5000)]
    assert host.device.loads == {"m": 1}
    assert host.ends[request].outcome == host.ends[decision].outcome == "completed"
    host.close()


def test_R7_both_models_stay_resident_across_a_thousand_alternations():
    host = open_bench(shared=False, retained=0)
    for n in range(1000):
        host.generate((n % 90, 5), 1)
        host.decide([[n % 90]], [1])
        host.run()
    assert host.device.loads == {"m": 1, "d": 1}
    assert len(loads(host)) == 2
    assert {ended.outcome for ended in host.ends.values()} == {"completed"}
    host.close()


def test_nothing_is_ready_before_everything_is_loaded_and_warm():
    host = BenchHost(Bench(shared=False))
    host.send("supervisor", Start())
    while host.device.running is not None or any(host.mail.values()):
        host.settle()
        if host.device.running is None:
            break
        assert states(host) == ["starting"]
        assert not host.supervisor.readiness().ready
        host.segment()
    assert states(host) == ["starting", "ready"]
    kinds = [(s.work.kind, s.work.model) for s in host.device.finished]
    assert kinds == [(k, m) for m in "md" for k in (StepKind.LOAD, StepKind.WARMUP)]
    assert host.supervisor.readiness().admitted_context == host.bench.context


def test_requests_that_come_while_something_loads_are_kept_and_load_nothing_more():
    host = BenchHost(Bench())
    host.send("supervisor", Start())
    host.settle()
    requests = [host.generate(PROMPT, 3) for _ in range(4)]
    host.run()
    assert [host.ends[r].outcome for r in requests] == ["completed"] * 4
    assert host.device.loads == {"m": 1}


def test_R30_the_revision_only_grows_and_actions_are_open_when_they_help():
    host = open_bench()
    lose(host)
    host.recover("retry")
    host.run()
    host.close()
    events = host.readiness()
    assert [e.revision for e in events] == list(range(1, len(events) + 1))
    assert states(host) == ["starting", "ready", "faulted", "recovering", "ready", "closing", "closed"]
    assert [e.actions for e in events if e.state == "faulted"] == [("retry", "repair")]
    assert all(not e.actions for e in events if e.state != "faulted")
    assert all((e.admitted_context > 0) == (e.state == "ready") for e in events)


@pytest.mark.parametrize(("action", "weights"), [("retry", False), ("repair", True)])
def test_R6_retry_keeps_the_weights_and_repair_loads_them_again(action, weights):
    host = open_bench(shared=False)
    host.generate(PROMPT, 3)
    host.run()
    failed = lose(host)
    assert isinstance(host.ends[failed].error, DeviceLost)
    assert not host.supervisor.readiness().ready
    refused = host.generate(PROMPT, 3)
    host.run()
    assert isinstance(host.ends[refused].error, DeviceLost)
    host.recover(action)
    host.run()
    assert [work.weights for work in loads(host)[2:]] == [weights, weights]
    again = host.generate(PROMPT, 3)
    host.run()
    assert host.ends[again].outcome == "completed"
    assert host.reuse[again].reused == 0
    check_promises(host)
    host.close()


def test_R6_a_retry_after_a_repair_that_failed_loads_the_weights():
    host = open_bench(shared=False)
    lose(host)
    host.recover("repair")
    host.settle()
    host.device.inject = Failed(BackendFault("the file is damaged"))
    host.run()
    assert states(host)[-1] == "faulted"
    assert host.supervisor.readiness().error == BackendFault("the file is damaged")
    host.recover("retry")
    host.run()
    assert [work.weights for work in loads(host)[2:]] == [True, True]
    assert states(host)[-1] == "ready"
    host.close()


@pytest.mark.parametrize("failing", range(4))
def test_a_load_or_warm_up_that_fails_is_a_fault_that_retry_mends(failing):
    host = BenchHost(Bench(shared=False))
    host.send("supervisor", Start())
    host.run(until=lambda: len(host.device.finished) == failing)
    host.device.inject = Failed(BackendFault("broken"))
    waiting = host.generate(PROMPT, 3)
    host.run()
    assert states(host) == ["starting", "faulted"]
    assert host.ends[waiting].error == BackendFault("broken")
    host.recover("retry")
    host.run()
    assert states(host)[-1] == "ready"
    assert host.ledger.statistics().accounts["weights/m"].reserved == 5000
    host.close()


def test_what_does_not_fit_is_a_fault_with_the_numbers():
    host = open_bench(partition=12_000)
    error = host.supervisor.readiness().error
    assert isinstance(error, BudgetExceeded)
    assert (error.details["asked"], error.details["available"]) == (7000, 6000)
    host.close()


@pytest.mark.parametrize("seed", range(40))
def test_no_step_from_before_a_fault_runs_after_it(seed):
    """Recovery waits until every actor has nothing on its way, whatever order the mailboxes are emptied in."""
    host = open_bench(seed=seed, slots=3)
    for n in range(4):
        host.generate((n, *PROMPT), 6)
    host.run(until=lambda: len(host.device.segments) > 20 + seed)
    for n in range(4):
        host.cancel(f"g{n + 1}")
        host.decide([[n, 1]], [n])
    host.device.inject = LOST
    host.segment()
    while host.supervisor.readiness().state != "faulted":
        host.deliver()
    host.send("supervisor", Recover("retry"))
    host.run()
    lost_at = max(n for n, s in enumerate(host.device.segments) if s.step.work.kind is StepKind.LOAD)
    assert {s.step.work.kind for s in host.device.segments[lost_at + 1 :]} == {StepKind.WARMUP}
    assert host.generation.statistics().prefixes.entries == 0
    again = host.generate(PROMPT, 6)
    host.run()
    assert host.ends[again].outcome == "completed"
    check_promises(host)
    host.close()


def test_recovery_begins_when_the_last_actor_is_drained_and_its_own_step_has_ended():
    supervisor = Supervisor((ModelSetup("m", (), 0),), 100, ("generation", "decision"))
    supervisor.handle(Start(), 0)
    supervisor.handle(DeviceFault(DeviceLost("gone")), 1)
    assert supervisor.handle(Recover("retry"), 2) != []
    assert supervisor.handle(Drained("generation"), 3) == []
    assert supervisor.handle(Drained("decision"), 4) == []
    ended = StepDone("supervisor/1", Failed(DeviceLost("gone"), sticky=True), settle=False)
    assert Send("device", ResetDevice()) in supervisor.handle(ended, 5)


def test_the_end_of_a_step_from_before_a_fault_is_not_taken_for_the_present_one():
    supervisor = Supervisor((ModelSetup("m", (), 0),), 100, ())
    supervisor.handle(Start(), 0)
    supervisor.handle(DeviceFault(DeviceLost("gone")), 1)
    supervisor.handle(Recover("retry"), 2)
    supervisor.handle(StepDone("supervisor/1", Failed(BackendFault("broken")), settle=False), 3)
    assert supervisor.readiness().state == "recovering"


def test_an_unknown_recovery_is_refused_and_one_that_is_not_open_changes_nothing():
    host = open_bench()
    with pytest.raises(InvalidRequest, match="known are retry, repair"):
        host.supervisor.handle(Recover("reboot"), 0)
    host.recover("retry")
    host.run()
    assert states(host) == ["starting", "ready"]


def test_a_lost_device_is_not_ready_until_it_is_repaired():
    host = open_bench()
    failed = lose(host)
    assert host.ends[failed].reason == "DeviceLost"
    assert host.supervisor.readiness().ready is False
    host.recover("repair")
    host.run()
    assert host.supervisor.readiness().ready is True
    request = host.generate(PROMPT, 3)
    host.run()
    assert host.ends[request].outcome == "completed"


@pytest.mark.parametrize("segments", range(0, 40, 3))
@pytest.mark.parametrize("seed", range(3))
def test_close_ends_everything_wherever_it_comes(segments, seed):
    host = BenchHost(Bench(shared=False, seed=seed))
    host.send("supervisor", Start())
    requests = [host.generate(PROMPT, 5), host.generate(PROMPT[:20], 5)]
    host.run(until=lambda: len(host.device.segments) >= segments)
    decision = host.decide([[1, 2], [3]], PROMPT[:9])
    for _ in range(seed):
        host.deliver()
    host.close()
    for request in (*requests, decision):
        assert host.ends[request].outcome in ("completed", "abstained") or isinstance(host.ends[request].error, Closed)
    late = host.generate(PROMPT, 5)
    host.settle()
    assert isinstance(host.ends[late].error, Closed)
    check_promises(host)


@pytest.mark.parametrize("deliveries", range(8))
def test_close_in_the_middle_of_a_recovery(deliveries):
    host = open_bench()
    lose(host)
    host.recover("repair")
    for _ in range(deliveries):
        host.deliver()
    host.close()


def test_a_second_close_changes_nothing():
    host = open_bench()
    host.close()
    host.send("supervisor", Close())
    host.settle()
    assert states(host)[-2:] == ["closing", "closed"]
