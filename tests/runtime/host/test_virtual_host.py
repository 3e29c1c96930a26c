"""The virtual host: the order of what happens at one instant, timers, faults, and runs that are equal to the byte."""

from __future__ import annotations

import random

import pytest
from coresident.actors.errors import BackendFault, Closed, DeviceLost
from coresident.actors.messages import Recover
from coresident.runtime.backends.modelled import ModelledBackend

from support.scripted import ScriptedBackend
from support.virtual import COST, HEADS, MS, UTILITY, Sim, config


def mixed(seed: int) -> Sim:
    """A workload of everything, from a seed."""
    draw = random.Random(seed)
    it = Sim(
        config(generation={"sequences": 3, "retained": "1 MiB"}, device={"workspace": "48 KiB"}, limits={"requests": 4})
    )
    for n in range(40):
        at = draw.randrange(2000)
        first = draw.randrange(4)
        deadline = at + draw.randrange(1, 300) if draw.random() < 0.3 else None
        options = {"work_class": UTILITY} if draw.random() < 0.3 else {}
        it.generate(
            at,
            f"g{n}",
            range(first, first + draw.randrange(1, 200)),
            draw.randrange(1, 30),
            deadline=deadline,
            **options,
        )
        if draw.random() < 0.3:
            it.cancel(at + draw.randrange(200), f"g{n}")
        it.decide(draw.randrange(2000), f"d{n}", draw.randrange(3) * 10, (4,) * draw.randrange(1, 4), deadline)
    return it


@pytest.mark.parametrize("seed", range(4))
def test_two_runs_of_one_input_are_equal_to_the_byte(seed):
    runs = []
    for _ in range(2):
        it = mixed(seed)
        it.run()
        it.close()
        runs.append("\n".join(it.log.deliveries).encode())
    assert runs[0] == runs[1]
    assert len(it.log.ends) == 80
    outcomes = {getattr(end, "outcome", "refused") for end in it.log.ends.values()}
    assert {"completed", "cancelled", "refused"} <= outcomes


def test_another_input_gives_another_run():
    one, other = mixed(0), mixed(1)
    one.run()
    other.run()
    assert one.log.deliveries != other.log.deliveries


def test_running_in_pieces_changes_nothing():
    whole, pieces = mixed(2), mixed(2)
    whole.run()
    for until in range(0, 4000, 7):
        pieces.run(until)
        assert pieces.host.now <= until * MS
    pieces.run()
    assert whole.log.deliveries == pieces.log.deliveries


def test_the_clock_never_goes_back():
    it = Sim()
    it.at(10, lambda: None)
    it.at(30, lambda: None)
    it.run(20)
    it.run(5)
    assert it.host.now == 20 * MS


def test_a_call_in_the_past_happens_now():
    it = Sim()
    seen = []
    it.at(10, lambda: it.host.call_at(3, lambda: seen.append(it.host.now)))
    it.run()
    assert seen == [10 * MS]


def test_calls_of_one_instant_keep_their_order():
    it = Sim()
    seen = []
    for n in range(5):
        it.at(7, lambda n=n: seen.append(n))
    it.run()
    assert seen == [0, 1, 2, 3, 4]


def test_a_segment_that_ends_at_an_instant_comes_before_what_arrives_then():
    """At 4 ms the segment is over and the next one has begun: the decision waits for that one."""
    it = Sim()
    it.generate(0, "g", 16)
    it.decide(4, "d")
    it.run()
    assert it.wait_of("d") == 4


def test_a_timer_that_was_cancelled_moves_no_clock():
    it = Sim()
    it.generate(0, "g", 16, deadline=100_000, retain=False)
    it.decide(0, "d", deadline=100_000)
    it.run()
    assert it.host.now == 20 * MS


def test_deadlines_ring_in_order():
    it = Sim(config(generation={"sequences": 1}))
    it.generate(0, "first", 400, retain=False)
    for n, deadline in enumerate((30, 10, 20, 10)):
        it.generate(1, f"g{n}", 16, deadline=deadline)
    it.run(40)
    ends = [line for line in it.log.lines if "deadline" in line]
    assert ends == [f"{at} {who} cancelled deadline" for at, who in ((10, "g1"), (10, "g3"), (20, "g2"), (30, "g0"))]


@pytest.mark.parametrize(("operation", "segment"), [("prefill", 0), ("prefill", 2), ("decode", 1), ("score", 1)])
def test_an_injected_fault_ends_one_request(operation, segment):
    backend = ScriptedBackend(ModelledBackend(COST, tuple(HEADS)))
    it = Sim(backend=backend)
    backend.fail(operation, RuntimeError("broken"), segment, skip=1)
    for n in range(3):
        it.generate(100 * n, f"g{n}", 16, 2, retain=False)
        it.decide(100 * n + 30, f"d{n}", rows=(2,))
    it.run()
    failed = {request for request, end in it.log.ends.items() if end.outcome == "failed"}
    assert failed == {"d1" if operation == "score" else "g1"}
    assert all(isinstance(it.log.ends[request].error, BackendFault) for request in failed)
    assert len(it.log.ends) == 6
    assert backend.open_workspaces == 0
    assert backend.pending == 0


def test_R6_a_lost_device_is_said_before_anybody_hears_of_a_failed_request():
    backend = ScriptedBackend(ModelledBackend(COST, tuple(HEADS)))
    it = Sim(backend=backend)
    ready_when_told = []
    ended = it._ended

    def listen(event, at):
        if type(event).__name__ == "GenerationEnded" and event.outcome == "failed":
            ready_when_told.append(it.assembly.supervisor.readiness().ready)
        ended(event, at)

    it.host.listen_all(listen)
    backend.fail("prefill", DeviceLost("unplugged"), 2, skip=1)
    it.generate(0, "g0", 48, 2)
    it.generate(1, "g1", 48, 2)
    it.decide(22, "d")
    it.host.run()
    assert ready_when_told == [False, False]
    assert {request: end.reason for request, end in it.log.ends.items() if end.outcome == "failed"} == {
        "g0": "DeviceLost",
        "g1": "DeviceLost",
    }
    it.host.send("supervisor", Recover("repair"))
    it.generate(it.host.now / MS + 1, "again", 48, 2)
    it.run()
    assert it.log.ends["again"].outcome == "completed"
    assert [event.state for event in it.log.readiness] == ["starting", "ready", "faulted", "recovering", "ready"]
    it.close()


def test_a_stopped_host_says_so():
    it = Sim()
    it.close()
    with pytest.raises(Closed):
        it.host.send("supervisor", Recover("retry"))


def test_slow_grants_are_counted_without_loads():
    it = Sim(config(device={"yield_ms": 5}, generation={"chunk": 16}))
    it.generate(0, "g", 20, 3, retain=False)
    it.run()
    device = it.assembly.device.statistics()
    assert device.longest_segment_ns == 10 * MS
    assert device.slow_grants == 1, "the decode run; both chunks have segments of 4 ms and 1 ms"
    fast = Sim(config(device={"yield_ms": 10}))
    fast.generate(0, "g", 20, 3, retain=False)
    fast.run()
    assert fast.assembly.device.statistics().slow_grants == 0


def test_a_step_that_goes_on_without_its_suspended_run_fails_as_on_the_executor():
    it = Sim()
    it.generate(0, "g", 64, 2)
    it.decide(2, "d")
    while not it.host.suspended:
        it.run(until=it.host.now / MS + 1)
    for run in it.host._device.suspended.values():
        run.close()
    it.host._device.suspended.clear()
    it.run()
    assert it.log.ends["g"].outcome == "failed"
    assert "KeyError" in it.log.ends["g"].error.message
