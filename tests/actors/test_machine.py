"""All actors together under random requests, cancels, faults, recoveries and delivery orders, with every ordering.

Checked at every delivery by the bench: one grant at a time, workspace that adds up, a ledger within its partition,
prefixes within their bytes, ``0 <= reused <= matched <= prompt - 1``, one end per request. Checked here: a decision
waits for at most one segment of less urgent work, and everything else for at most one of a preparation, a cancel costs
at most one more segment, and at the end every request has ended, tokens and scores equal solo runs, nothing was
computed twice, and the ledger is at zero.
"""

from __future__ import annotations

import random

import pytest
from coresident.actors.errors import BackendFault, DeviceLost
from coresident.actors.messages import Failed
from coresident.policies.catalog import ORDERING, resolve
from coresident.policies.views import WorkClass
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.bench_host import MS, open_bench
from support.bench_setup import HEADS
from support.promises import check_promises, less_urgent_before, own_segments

ints = st.integers
# Prompts share these heads; the first is shorter than a chunk.
SHARED = (tuple(range(1, 6)), tuple(range(20, 41)), tuple(range(20, 61)))
# Conversations whose known part grows, and in which a catalog may change near the end of the shared head.
CONVERSATIONS = ("", "one", "two")
QUIET = {"after_quiet": {"quiet_ms": 5}}
TRAFFIC = {"generate": 3, "decide": 3, "prepare": 1, "cancel": 1, "segments": 6}
IDLING = {"prepare": 4, "go on": 3, "generate": 1, "decide": 1, "cancel the last": 1, "segments": 8, "many segments": 6}
INSTRUCTIONS = ((), tuple(range(70, 82)), tuple(range(80, 84)))


def tail(salt, length):
    return tuple((salt * 31 + i * 7) % 90 + 1 for i in range(length))


# Two numbers and not a draw for each token, so that an example has room for many steps.
tails = st.builds(tail, ints(0, 5), ints(1, 30))
deadlines = st.sampled_from([None, None, None, 0, 3 * MS, 20 * MS, 60 * MS])


class Actors(RuleBasedStateMachine):
    """One device, one generation and one decision model; ``ordering`` is set by the test."""

    ordering = "strict"

    @initialize(
        seed=ints(0, 10_000),
        slots=ints(1, 3),
        tight=st.booleans(),
        prompt=st.booleans(),
        can_suspend=st.sampled_from([True, True, False]),
        retained=st.sampled_from([4000, 12_000, 700, 0, 4000]),
        reuse_grid=st.sampled_from([1, 8]),
        block=st.sampled_from([4, 1, 8, 0]),
        shared=st.booleans(),
        restarts=st.sampled_from([None, None, 0, 2]),
        policies=st.tuples(
            st.sampled_from(["fixed", "timed", "arrivals"]),
            st.sampled_from(["lru", "cost"]),
            st.sampled_from(["idle", "idle", "after_quiet", "never", "gain"]),
        ),
    )
    def start(self, seed, slots, tight, prompt, can_suspend, retained, reuse_grid, block, shared, restarts, policies):
        self.breaks = restarts is not None
        self.prompt = prompt
        self.bounded = can_suspend and not tight and self.ordering not in ("fifo", "edf")
        self.cancelled = {}
        self.given_up = set()
        self.behind = 0
        self.known = dict.fromkeys(CONVERSATIONS, SHARED[2])
        self.host = open_bench(
            ordering=self.ordering,
            quantum=policies[0],
            retention=policies[1],
            preparation=resolve("preparation", policies[2], **QUIET.get(policies[2], {})),
            seed=seed,
            slots=slots,
            workspace=460 if tight else 10_000,
            retained=retained,
            partition=30_000,
            can_suspend=can_suspend,
            reuse_grid=reuse_grid,
            block=block,
            shared=shared,
            restarts=restarts or 0,
        )

    @rule(
        head=st.sampled_from(SHARED),
        tail=tails,
        max_tokens=ints(1, 20),
        work_class=st.sampled_from([WorkClass.FOREGROUND, WorkClass.FOREGROUND, WorkClass.UTILITY]),
        due=deadlines,
        retain=st.booleans(),
    )
    def generate(self, head, tail, max_tokens, work_class, due, retain):
        deadline = None if due is None else self.host.at + due
        self.host.generate(head + tail, max_tokens, work_class=work_class, deadline=deadline, retain=retain)
        self._arrived()

    @rule(
        instruction=st.sampled_from(INSTRUCTIONS),
        rows=st.lists(tails, min_size=1, max_size=3),
        heads=st.lists(st.sampled_from(sorted(HEADS)), min_size=1, unique=True),
        due=deadlines,
    )
    def decide(self, instruction, rows, heads, due):
        deadline = None if due is None else self.host.at + due
        self.host.decide(rows, instruction, heads, deadline=deadline)
        self._arrived()

    @rule(
        conversation=st.sampled_from(CONVERSATIONS),
        change=st.sampled_from(["none", "grow", "catalog"]),
        salt=ints(0, 5),
    )
    def prepare(self, conversation, change, salt):
        self._prepare(conversation, change, salt)

    @rule(known=st.sampled_from(CONVERSATIONS), says=st.sampled_from(CONVERSATIONS), tail=tails, retain=st.booleans())
    def go_on(self, known, says, tail, retain):
        """A request that continues what a conversation was prepared for, whether it says so or not."""
        self._go_on(known, says, tail, retain)

    def _prepare(self, conversation, change, salt):
        known = self.known[conversation]
        if change == "grow":
            known = (*known, *tail(salt, 25)) if len(known) < 150 else SHARED[2]
        elif change == "catalog":
            where = len(known) * (salt + 1) // 7
            known = (*known[:where], 91, 92, *known[where + 1 :])
        self.known[conversation] = known
        self.host.prepare(known, 40, conversation=conversation)
        self._arrived()

    def _go_on(self, known, says, tail, retain):
        self.host.generate((*self.known[known], *tail), 5, conversation=says, retain=retain)
        self._arrived()

    @rule(which=ints(0, 1000))
    def cancel(self, which):
        self._cancel(which)

    @rule(count=ints(1, 3) | ints(1, 40))
    def segments(self, count):
        self._segments(count)

    @rule(seed=ints(0, 1000), count=ints(5, 30))
    def traffic(self, seed, count):
        """Many clients at once, in one draw: Hypothesis alone seldom keeps the device busy for long."""
        draw = random.Random(seed)
        for _ in range(count):
            self._act(draw, draw.choices(list(TRAFFIC), list(TRAFFIC.values()))[0])

    @rule(seed=ints(0, 1000), count=ints(10, 25))
    def idling(self, seed, count):
        """Few clients, and time for preparations between them."""
        draw = random.Random(seed)
        for _ in range(count):
            self._act(draw, draw.choices(list(IDLING), list(IDLING.values()))[0])

    def _act(self, draw, what):
        match what:
            case "prepare":
                change = draw.choice(["none", "grow", "catalog"])
                self._prepare(draw.choice(CONVERSATIONS), change, draw.randrange(6))
            case "go on":
                known, says = draw.choice(CONVERSATIONS), draw.choice(CONVERSATIONS)
                self._go_on(known, says, tail(draw.randrange(6), draw.randint(1, 20)), draw.random() < 0.8)
            case "generate":
                prompt = draw.choice(SHARED) + tail(draw.randrange(6), draw.randint(1, 30))
                work_class = draw.choice([WorkClass.FOREGROUND, WorkClass.UTILITY])
                self.host.generate(prompt, draw.randint(1, 20), work_class=work_class, retain=draw.random() < 0.8)
            case "decide":
                rows = [tail(draw.randrange(6), draw.randint(1, 20)) for _ in range(draw.randint(1, 3))]
                self.host.decide(rows, draw.choice(INSTRUCTIONS), draw.sample(sorted(HEADS), 2))
            case "cancel":
                self._cancel(draw.randrange(1000))
            case "cancel the last":
                self._cancel(len(self.host.submitted) - 1)
            case "segments":
                self._segments(draw.randint(1, 10))
            case "many segments":
                self._segments(draw.randint(10, 60))
        self._arrived()
        self.a_decision_waits_for_one_segment()

    @precondition(lambda self: not self.prompt)
    @rule(count=ints(1, 5))
    def deliver(self, count):
        for _ in range(count):
            self.host.deliver()

    @precondition(lambda self: self.host.timers)
    @rule(ms=ints(1, 50))
    def wait(self, ms):
        self.host.wait(ms * MS)
        self._arrived()

    @precondition(lambda self: self.breaks and self.host.device.inject is None)
    @rule(sticky=st.sampled_from([False, False, True]))
    def fault(self, sticky):
        error = DeviceLost("the bench lost it") if sticky else BackendFault("the bench made it fail")
        self.host.device.inject = Failed(error, sticky)

    @rule(excess=ints(1, 100))
    def measure_too_much(self, excess):
        self.host.device.excess = excess

    @precondition(lambda self: self.host.supervisor.readiness().actions)
    @rule(action=st.sampled_from(["retry", "repair"]))
    def recover(self, action):
        self.host.recover(action)
        self._arrived()

    @invariant()
    def a_decision_waits_for_one_segment(self):
        if self.bounded:
            # One that was cancelled wants the device no more, even before its end has been delivered.
            for request in self.host.begun.keys() - self.given_up:
                assert less_urgent_before(self.host, request, self.host.begun[request]) <= 1

    def _cancel(self, which):
        names = list(self.host.submitted)
        if names:
            name = names[which % len(names)]
            self.host.cancel(name)
            self.given_up.add(name)
            self._arrived()
            if self.prompt:
                self.cancelled.setdefault(name, len(self.host.device.segments))

    def _segments(self, count):
        for _ in range(count):
            self._arrived()
            self._segment()
        self._arrived()

    def _segment(self):
        """Preparation runs at most one segment while somebody more urgent waits for the device, or for its slot.

        What it still has to do to leave a slot has the urgency of who waits for that.
        """
        host = self.host
        waiting = host.controller._queue.waiting()
        urgent = any(s.work_class < WorkClass.PREPARATION for s in waiting) or host.generation._queued()
        running = host.controller._running and host.controller._running.step.work_class
        self.behind = self.behind + 1 if urgent and running is WorkClass.PREPARATION else 0
        assert self.behind <= 1 or not (self.bounded and self.prompt)
        host.segment()

    def _arrived(self):
        if self.prompt:
            self.host.settle()

    def teardown(self):
        host = self.host
        host.device.inject = None
        host.run_on()
        if not host.supervisor.readiness().ready:
            host.recover("retry")
            host.run_on()
        assert host.supervisor.readiness().ready
        assert not host.open
        check_promises(host)
        for request, since in self.cancelled.items():
            assert own_segments(host, request, since) <= 1
        host.close()


@pytest.mark.parametrize("ordering", sorted(ORDERING))
def test_promises_under_every_ordering_policy(ordering):
    machine = type(f"Actors_{ordering}", (Actors,), {"ordering": ordering})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=30))


def test_an_early_close_ends_everything():
    machine = type("ActorsClosed", (Actors,), {"teardown": close_at_once})
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=20))


def close_at_once(self):
    """Close in the middle of whatever is going on."""
    self.host.close()
    check_promises(self.host)
