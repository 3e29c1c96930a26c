"""What the actors tell policies of the past and of what is to come, on the bench and on the virtual host."""

from __future__ import annotations

import attrs
from coresident.actors.work import StepKind
from coresident.policies.catalog import resolve

from support.bench_host import MS, open_bench
from support.virtual import Sim, config


@attrs.define
class Spy:
    """A shipped policy that keeps what it was shown."""

    kind: str
    name: str
    views: list = attrs.field(factory=list)

    def __call__(self, view, memory):
        self.views.append(view)
        return resolve(self.kind, self.name)(view, memory)


def test_an_ordering_sees_what_a_request_may_still_need_and_since_when_the_device_is_free():
    spy = Spy("ordering", "strict")
    host = open_bench(ordering=spy, quantum=resolve("quantum", "fixed", tokens=2))
    host.generate(range(8), 3)
    host.run()
    idle_since = host.at
    host.wait(50 * MS)
    spy.views.clear()
    host.generate(range(100, 116), 5)
    host.run()
    granted = [view for view in spy.views if view.running is None]
    assert [view.free_since for view in granted] == [idle_since, *(view.at for view in granted[1:])]
    assert granted[0].at == idle_since + 50 * MS
    remaining = [view.waiting[0].remaining_ns for view in granted]
    # A chunk of 8 tokens takes 4 segments of 1 ms, and a token one: 16 and 5, less as it goes on.
    assert remaining[:4] == [13 * MS, 9 * MS, 4 * MS, 2 * MS]
    host.close()


def test_a_quantum_sees_how_many_decisions_have_asked():
    spy = Spy("quantum", "fixed")
    host = open_bench(quantum=spy)
    host.generate(range(8), 40)
    host.run(until=lambda: len(spy.views) == 1)
    for _ in range(3):
        host.decide([[1, 2], [3], [4]])
    host.run()
    assert spy.views[0].decisions == 0
    assert spy.views[-1].decisions == 3
    assert [view.at for view in spy.views] == sorted(view.at for view in spy.views)
    host.close()


def test_a_preparation_sees_what_is_left_and_how_long_pauses_were():
    spy = Spy("preparation", "idle")
    host = open_bench(preparation=spy)
    for pause in (5, 70):
        host.generate(range(16), 1, retain=False)
        host.run()
        host.wait(pause * MS)
    host.generate(range(16), 1, retain=False)
    host.run()
    host.prepare(range(100, 124))
    host.run()
    costs = [view.cost_ns for view in spy.views]
    assert costs[0] == 12 * MS
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 4 * MS
    first, *pauses = spy.views[0].thinks
    assert first == 0
    assert [round(pause / MS) for pause in pauses] == [5, 70]
    host.close()


def test_a_preparation_sees_what_was_computed_in_vain():
    spy = Spy("preparation", "idle")
    host = open_bench(preparation=spy)
    host.prepare(range(16), conversation="one")
    host.run(until=lambda: len(host.progress.get("p1", ())) == 1)
    host.prepare(range(500, 540), conversation="one")
    host.run()
    assert (spy.views[0].computed, spy.views[0].wasted) == (0, 0)
    assert (spy.views[-1].computed, spy.views[-1].wasted) == (8, 8)
    host.close()


def waits_of(ordering):
    """A short prompt comes just after a long one, both behind a first that was measured."""
    it = Sim(config(policies={"ordering": {"name": ordering}}, generation={"sequences": 3}))
    it.generate(0, "first", 16, 2, retain=False)
    it.generate(1, "long", range(100, 1000), 2, retain=False)
    it.generate(2, "short", range(2000, 2016), 2, retain=False)
    it.run()
    return it.log.ended_at["short"] / MS, it.log.ended_at["long"] / MS


def test_shortest_remaining_answers_the_short_one_first():
    by_turns, _ = waits_of("strict")
    shortest, long = waits_of("shortest_remaining")
    assert shortest < by_turns
    assert shortest < long


def test_arrivals_shortens_runs_while_decisions_come():
    """A run is at most 32 tokens; with a decision every 20 ms and 10 ms a token, it is one."""
    it = Sim(config(policies={"quantum": {"name": "arrivals"}}))
    it.generate(0, "g", 16, 300, retain=False)
    for n in range(100):
        it.decide(1000 + 20 * n, f"d{n}", rows=(1,))
    it.run()
    own = zip([grant for grant in it.log.grants if grant.request == "g"], it.log.starts["g"], strict=True)
    runs = [(at / MS, grant.shape.tokens) for grant, at in own if grant.kind is StepKind.DECODE]
    assert max(tokens for at, tokens in runs if at < 1000) == 32
    assert {tokens for at, tokens in runs if 2500 < at < 2900} == {1}
