"""A lost device that comes back by itself: what is run again, what fails, and when a person has to act."""

from __future__ import annotations

import pytest
from coresident.actors.decision import DecisionActor
from coresident.actors.effects import Notify, Send
from coresident.actors.errors import ArtifactInvalid, BudgetExceeded, DeviceLost
from coresident.actors.generation import GenerationActor
from coresident.actors.messages import (
    Available,
    DeviceFault,
    Failed,
    Start,
    StepDone,
    SubmitDecision,
    SubmitGeneration,
    SubmitStep,
    Unavailable,
)
from coresident.actors.work import LoadWork

from support.bench_host import BenchHost, open_bench
from support.bench_setup import Bench
from support.promises import check_promises

PROMPT = tuple(range(1, 42))
LOST = Failed(DeviceLost("the bench lost it"), sticky=True)
MINUTE = 60_000_000_000


def lose(host):
    """The device goes in the middle of whatever runs; everything that follows is delivered."""
    host.settle()
    assert host.device.running is not None
    host.device.inject = LOST
    host.segment()
    host.settle()


def states(host):
    return [event.state for event in host.readiness()]


def loads(host):
    return [(s.work.weights, s.work.repair) for s in host.device.finished if isinstance(s.work, LoadWork)]


@pytest.mark.parametrize("seed", [None, *range(12)])
def test_what_has_shown_nothing_is_run_again_and_gives_the_tokens_of_an_undisturbed_run(seed):
    calm = open_bench()
    expected = [calm.generate((9, *PROMPT), 5), calm.generate((8, *PROMPT), 5), calm.decide([[1, 2], [3]], [5] * 9)]
    calm.run()
    host = open_bench(restarts=3, seed=seed)
    requests = [host.generate((9, *PROMPT), 5), host.generate((8, *PROMPT), 5), host.decide([[1, 2], [3]], [5] * 9)]
    host.settle()
    lose(host)
    host.run()
    assert [host.ends[r].outcome for r in requests] == ["completed"] * 3
    assert [host.device.streams.get(r) for r in requests] == [calm.device.streams.get(r) for r in expected]
    assert host.ends[requests[2]].scores == calm.ends[expected[2]].scores
    assert states(host) == ["starting", "ready", "faulted", "recovering", "ready"]
    assert loads(host) == [(True, False), (False, False)]
    check_promises(host)
    host.close()


def test_R76_a_request_that_has_shown_tokens_fails_typed_and_the_others_go_on():
    host = open_bench(restarts=3)
    shown = host.generate(PROMPT, 50)
    host.run(until=lambda: len(host.device.streams.get(shown, ())) > 2)
    waiting = host.generate((7, *PROMPT), 3)
    lose(host)
    host.run()
    assert (host.ends[shown].outcome, host.ends[shown].reason) == ("failed", "DeviceLost")
    assert host.ends[waiting].outcome == "completed"
    check_promises(host)
    host.close()


def test_a_token_that_was_shown_by_the_very_step_that_was_lost_counts_as_shown():
    bench = Bench(restarts=1)
    actor = GenerationActor(bench.generation_setup())
    actor.handle(Available(), 0)
    effects = actor.handle(SubmitGeneration("g", (1, 2, 3), 4, "m/chat"), 0)
    step = next(e.message.step for e in effects if isinstance(e, Send) and isinstance(e.message, SubmitStep))
    assert step.work.last
    effects = actor.handle(StepDone(step.step, Failed(LOST.error, True, ("g",)), settle=False), 1)
    assert [e.event.outcome for e in effects if isinstance(e, Notify)] == ["failed"]


def test_a_request_that_loses_the_device_twice_fails_and_those_that_only_waited_do_not():
    host = open_bench(restarts=5, slots=1)
    poison = host.generate((9, *PROMPT), 4)
    innocent = host.generate((8, *PROMPT), 4)
    lose(host)
    host.run(until=lambda: host.device.running is not None and host.supervisor.readiness().ready)
    assert host.device.running.grant.step.request == poison
    lose(host)
    host.run()
    assert (host.ends[poison].outcome, host.ends[poison].reason) == ("failed", "DeviceLost")
    assert host.ends[innocent].outcome == "completed"
    host.close()


def test_restarts_are_bounded_and_then_everything_fails_and_a_person_may_repair():
    host = open_bench(restarts=2, slots=1)
    requests = [host.generate((n, *PROMPT), 4) for n in range(4)]
    for _ in range(3):
        host.run(until=lambda: host.device.running is not None and host.supervisor.readiness().ready)
        lose(host)
    host.run()
    assert [host.ends[r].outcome for r in requests] == ["failed"] * 4
    assert host.supervisor.readiness().actions == ("retry", "repair")
    assert all(account.used == 0 for account in host.ledger.statistics().accounts.values())
    host.recover("repair")
    host.run()
    again = host.generate(PROMPT, 3)
    host.run()
    assert host.ends[again].outcome == "completed"
    assert loads(host)[-1] == (True, True)
    check_promises(host)
    host.close()


def test_requests_that_come_during_a_restart_wait_and_a_cancel_or_deadline_ends_them():
    host = open_bench(restarts=1)
    first = host.generate((9, *PROMPT), 4)
    lose(host)
    assert host.supervisor.readiness().state == "recovering"
    late, cancelled = host.generate((8, *PROMPT), 4), host.generate((7, *PROMPT), 4)
    expired = host.generate((6, *PROMPT), 4, deadline=host.at + 1)
    decided, undecided = host.decide([[1]], [5]), host.decide([[2]], [5], deadline=host.at + 1)
    host.settle()
    host.cancel(cancelled)
    host.cancel(first)
    host.wait(1)
    host.settle()
    assert {host.ends[r].outcome for r in (first, cancelled, expired)} == {"cancelled"}
    assert (host.ends[undecided].outcome, host.ends[undecided].reason) == ("abstained", "deadline")
    host.run()
    assert host.ends[late].outcome == host.ends[decided].outcome == "completed"
    check_promises(host)
    host.close()


def test_a_request_that_was_cancelled_before_the_loss_is_not_run_again():
    host = open_bench(restarts=1)
    request = host.generate((9, *PROMPT), 4)
    host.settle()
    host.cancel(request)
    host.settle()
    lose(host)
    host.run()
    assert host.ends[request].outcome in ("cancelled", "failed")
    assert request not in host.device.streams
    host.close()


@pytest.mark.parametrize(
    ("error", "state"),
    [(BudgetExceeded("it", 2, 1, "less"), "faulted"), (DeviceLost("gone"), "recovering")],
)
def test_only_what_a_restart_can_mend_is_restarted(error, state):
    host = open_bench(restarts=4)
    host.send("supervisor", DeviceFault(error))
    host.settle()
    assert host.supervisor.readiness().state == state
    host.run()
    host.close()


def test_the_window_of_restarts_moves_with_time():
    host = open_bench(restarts=1)
    for _ in range(3):
        host.send("supervisor", DeviceFault(DeviceLost("gone")))
        host.run()
        assert host.supervisor.readiness().ready
        host.wait(MINUTE)
    host.send("supervisor", DeviceFault(DeviceLost("gone")))
    host.run()
    host.send("supervisor", DeviceFault(DeviceLost("gone")))
    host.run()
    assert host.supervisor.readiness().state == "faulted"
    host.close()


def test_a_restart_that_fails_and_a_damaged_file_are_answered_by_a_repair():
    host = open_bench(restarts=3)
    host.send("supervisor", DeviceFault(DeviceLost("gone")))
    host.settle()
    lose(host)
    host.run()
    assert loads(host)[-1] == (True, True)
    host.send("supervisor", DeviceFault(ArtifactInvalid("damaged", file="f", field="digest", value="x")))
    host.run()
    assert loads(host)[-1] == (True, True)
    assert host.supervisor.readiness().ready
    host.close()


@pytest.mark.parametrize("restart", [False, True])
def test_R30_an_unavailable_decision_actor_drains_once_whether_or_not_its_requests_wait(restart):
    actor = DecisionActor(Bench(restarts=1).decision_setup())
    actor.handle(Available(), 0)
    actor.handle(SubmitDecision("d", (), ((1,),), ("relevance",), "m/rank"), 0)
    effects = actor.handle(Unavailable(DeviceLost("gone"), restart), 1)
    assert not any(isinstance(e, Send) and e.to == "supervisor" for e in effects)
    effects = actor.handle(StepDone("decision/1", LOST, settle=False), 2)
    assert [e.to for e in effects if isinstance(e, Send)] == ["supervisor"]
    assert actor.statistics().open == restart


@pytest.mark.parametrize("after", ["close", "retry", "repair", "restart"])
@pytest.mark.parametrize("segments", [0, 1])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_nothing_begins_on_a_device_that_still_runs_the_load_of_before_a_fault(after, segments, seed):
    host = BenchHost(Bench(shared=False, seed=seed, restarts=2 if after == "restart" else 0))
    host.send("supervisor", Start())
    host.settle()
    for _ in range(segments):
        host.segment()
    assert host.device.running is not None
    host.send("supervisor", DeviceFault(DeviceLost("told from elsewhere")))
    host.settle()
    if after == "close":
        host.close()
        return
    if after != "restart":
        host.recover(after)
    host.run()
    assert host.supervisor.readiness().ready
    assert host.ledger.statistics().accounts["weights/d"].reserved == 1000
    host.close()
