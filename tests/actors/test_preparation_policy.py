"""When preparation begins: every one asks its policy, whoever submits it."""

from __future__ import annotations

import pytest
from coresident.actors.events import Granted
from coresident.policies.errors import PolicyFault
from coresident.policies.views import WorkClass

from support.bench_host import MS, open_bench
from support.preparing import KNOWN, counts


class Watched:
    """A preparation policy that notes what it is asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def __call__(self, view, memory):
        self.asked.append(view)
        return self.answer(view), memory


def test_R55_every_preparation_asks_the_policy_whoever_submits_it():
    """Views of a registry and screenings without a person are preparations and utility like any other."""
    policy = Watched(lambda view: None if view.open else view.at)
    host = open_bench(preparation=policy, slots=3)
    screening = host.generate((91, *KNOWN), 5, work_class=WorkClass.UTILITY)
    view, chat = host.prepare(KNOWN[:16], conversation="registry"), host.prepare((90, *KNOWN), conversation="chat")
    host.run(until=lambda: screening in host.ends)
    assert not host.progress
    assert {v.open for v in policy.asked[:-1]} == {1}
    host.run()
    assert host.ends[view].outcome == host.ends[chat].outcome == "prepared"
    assert policy.asked[-1].quiet_since > 0
    classes = [e.work_class for e in host.events if isinstance(e, Granted) and e.request in (view, chat)]
    assert set(classes) == {WorkClass.PREPARATION}


def test_never_declines_once_nothing_else_is_open():
    host = open_bench(preparation="never")
    host.generate(KNOWN, 4)
    known = host.prepare((90, *KNOWN))
    host.settle()
    assert known in host.open
    host.run()
    assert counts(host, known) == ("declined", 48, 0, 0, 0)
    host.close()


def test_after_quiet_waits_from_the_last_end_on():
    host = open_bench(preparation="after_quiet")
    host.generate(KNOWN[:9], 2)
    host.run(until=lambda: "g1" in host.ends)
    known = host.prepare((90, *KNOWN))
    host.settle()
    assert [at for at, *_ in host.timers.values()] == [host.at + 250 * MS]
    assert known not in host.progress
    host.wait(100 * MS)
    host.generate(KNOWN[:9], 2)
    host.run()
    host.wait(200 * MS)
    host.run()
    assert known not in host.progress
    host.run_on()
    assert host.ends[known].outcome == "prepared"
    host.close()


def test_a_timer_of_a_preparation_that_ended_is_forgotten():
    host = open_bench(preparation="after_quiet")
    known = host.prepare(KNOWN)
    host.run()
    assert host.timers
    host.cancel(known)
    host.run()
    assert not host.timers
    host.prepare(KNOWN)
    host.run()
    host.close()


def raises(view, memory):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "preparation", [raises, lambda view, memory: (-1, None), lambda view, memory: ("now", None), lambda v, m: None]
)
def test_a_broken_preparation_policy_is_replaced_and_reported_once(preparation):
    host = open_bench(preparation=preparation)
    known = host.prepare(KNOWN)
    host.run()
    ((policy, error),) = host.faults()
    assert policy == "preparation"
    assert isinstance(error, PolicyFault)
    assert host.ends[known].outcome == "prepared"


def test_a_policy_that_changes_its_mind_ends_the_preparation_with_its_chunk():
    host = open_bench(preparation=Watched(lambda view: view.at if view.at < 12 * MS else None))
    known = host.prepare(KNOWN)
    host.run()
    assert host.ends[known].outcome == "declined"
    assert 0 < host.ends[known].computed < 48
    assert host.kept() == [KNOWN[: host.ends[known].computed]]
    host.close()
