"""Conversations that share heads under any interleaving of turns, cancels, pins, releases, faults and recoveries.

The bench counts the bytes of actor, ledger and storage at every quiet moment, and its storage takes no head that is
not the same to the bit. Checked here: tokens equal solo runs, and nothing is left in the end.
"""

from __future__ import annotations

import random

from coresident.actors.errors import BackendFault, DeviceLost
from coresident.actors.messages import Failed, PinConversation, ReleaseConversation
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.bench_host import open_bench
from support.promises import check_promises

NAMES = ("", "one", "two", "three")
HEADS = (tuple(range(1, 10)), tuple(range(1, 30)), tuple(range(1, 50)), (*range(1, 20), *range(60, 80)))
names = st.sampled_from(NAMES)


class Conversations(RuleBasedStateMachine):
    @initialize(
        seed=st.none() | st.integers(0, 999),
        block=st.sampled_from([4, 1, 16, 0]),
        retained=st.sampled_from([900, 1600, 400]),
        slots=st.integers(1, 3),
        grid=st.sampled_from([1, 8]),
        retention=st.sampled_from(["lru", "cost"]),
    )
    def start(self, seed, block, retained, slots, grid, retention):
        self.said = dict.fromkeys(NAMES, ())
        self.last = {}
        self.host = open_bench(
            seed=seed, block=block, retained=retained, slots=slots, reuse_grid=grid, retention=retention
        )

    @rule(name=names, head=st.sampled_from(HEADS), salt=st.integers(90, 96), tokens=st.integers(1, 12))
    def turn(self, name, head, salt, tokens):
        """The next turn of a conversation, behind all that was said in it, or a new one."""
        before = self.host.tokens(self.last[name]) if name in self.last else ()
        known = (*self.said[name], *before)
        prompt = (*known, salt, salt) if known and len(known) < 90 and salt % 2 else (*head, salt)
        self.said[name] = prompt
        self.last[name] = self.host.generate(prompt, tokens, conversation=name)

    @rule(count=st.integers(1, 40))
    def segments(self, count):
        for _ in range(count):
            self.host.settle()
            self.host.segment()

    @rule(seed=st.integers(0, 999), count=st.integers(5, 25))
    def traffic(self, seed, count):
        """Much at once, in one draw: Hypothesis alone seldom lets a turn come to its end."""
        draw = random.Random(seed)
        for _ in range(count):
            name = draw.choice(NAMES)
            match draw.choices(("turn", "segments", "end", "cancel", "pin", "release"), (5, 6, 3, 1, 1, 1))[0]:
                case "turn":
                    self.turn(name, draw.choice(HEADS), draw.randint(90, 96), draw.randint(1, 12))
                case "segments":
                    self.segments(draw.randint(1, 40))
                case "end":
                    self.host.run()
                case "cancel":
                    self.cancel(name)
                case "pin":
                    self.pin(name, draw.random() < 0.3)
                case "release":
                    self.release(name)

    @rule(count=st.integers(1, 6))
    def deliver(self, count):
        for _ in range(count):
            self.host.deliver()

    @rule()
    def run_to_the_end(self):
        self.host.run()

    @rule(name=names, pinned=st.booleans())
    def pin(self, name, pinned):
        self.host.send("generation", PinConversation(name, pinned))

    @rule(name=names)
    def release(self, name):
        self.host.send("generation", ReleaseConversation(name))

    @precondition(lambda self: self.last)
    @rule(name=names)
    def cancel(self, name):
        if name in self.last:
            self.host.cancel(self.last[name])

    @precondition(lambda self: self.host.device.running is not None)
    @rule(sticky=st.sampled_from([False, False, False, True]))
    def fault(self, sticky):
        error = DeviceLost("the bench lost it") if sticky else BackendFault("the bench made it fail")
        self.host.device.inject = Failed(error, sticky)

    @precondition(lambda self: self.host.supervisor.readiness().actions)
    @rule(action=st.sampled_from(["retry", "repair"]))
    def recover(self, action):
        self.host.recover(action)

    @invariant()
    def users_are_what_is_in_flight(self):
        """An idle actor holds nobody."""
        generation = self.host.generation
        if not generation.statistics().open:
            assert all(entry.users == 0 for entry in generation._kv.prefixes.entries())

    def teardown(self):
        host = self.host
        host.device.inject = None
        host.run_on()
        if not host.supervisor.readiness().ready:
            host.recover("retry")
            host.run_on()
        check_promises(host)
        host.close()


Conversations.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestConversations = Conversations.TestCase
