"""Ordering policies that misbehave: replaced, reported once, and no work is lost."""

from __future__ import annotations

import pytest
from coresident.actors.work import Measured
from coresident.policies.catalog import resolve
from coresident.policies.errors import PolicyFault
from coresident.policies.views import Choice

from support.bench_host import open_bench
from support.promises import check_promises

PROMPT = tuple(range(1, 60))
USED = Measured(0, 1, 1, 1, 1)


def raises(view, memory):
    raise RuntimeError("no idea")


def drops_twice(view, memory):
    """Honest until a chunk is suspended, which it then drops twice at once."""
    suspended = [s.step for s in view.waiting if s.suspended]
    fresh = [s for s in view.waiting if not s.suspended]
    if suspended and fresh and view.running is None:
        return Choice(fresh[0].step, (suspended[0], suspended[0])), memory
    return resolve("ordering", "strict")(view, memory)


def too_large(view, memory):
    """Chooses what doesn't fit beside the suspended chunk, and drops nothing."""
    fresh = [s.step for s in view.waiting if not s.suspended]
    if view.running is None and fresh:
        return Choice(fresh[0]), memory
    return resolve("ordering", "strict")(view, memory)


def drops_the_waiting(view, memory):
    waiting = [s.step for s in view.waiting if not s.suspended]
    return Choice(waiting[0], (waiting[-1],)), memory


def leaves(view, memory):
    raise SystemExit(3)


BROKEN = {
    "leaves the process": leaves,
    "raises": raises,
    "names what is not there": lambda view, memory: (Choice("nobody/1"), memory),
    "gives no choice": lambda view, memory: None,
    "gives something else": lambda view, memory: ("generation/1", memory),
    "drops a chunk twice": drops_twice,
    "chooses what does not fit": too_large,
    "drops what is not suspended": drops_the_waiting,
}


@pytest.mark.parametrize("ordering", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_ordering_policy_is_replaced_and_reported_once(ordering):
    host = open_bench(ordering=ordering, workspace=450)
    requests = [host.generate(PROMPT, 5)]
    host.settle()
    host.segment()
    for n in range(3):
        requests += [host.decide([[1, 2], [3]]), host.generate((n, *PROMPT), 5)]
        host.settle()
        host.segment()
    host.run()
    assert [host.ends[r].outcome for r in requests] == ["completed"] * len(requests)
    assert [(name, type(error)) for name, error in host.faults()] == [("ordering", PolicyFault)]
    assert host.controller.statistics().policy_faults == 1
    check_promises(host)
    host.close()


def test_a_policys_memory_is_kept_when_its_choice_is_carried_out():
    """Asked whether running work should yield, it is asked and not obeyed: what it remembers then is forgotten."""
    seen = []

    def counting(view, memory):
        seen.append((view.running is None, memory))
        return resolve("ordering", "fifo")(view, None)[0], (memory or 0) + 1

    host = open_bench(ordering=counting)
    for n in range(3):
        host.generate((n, *PROMPT), 2)
    host.run()
    carried_out = 0
    for free, memory in seen:
        assert (memory or 0) == carried_out
        carried_out += free
    assert any(not free for free, _ in seen)


@pytest.mark.parametrize("answer", [42, None, (None, 1), (1, 2, 3), "ab"])
def test_an_answer_of_another_kind_is_told_as_it_is_with_what_is_needed(answer):
    host = open_bench(ordering=lambda view, memory: answer)
    host.generate(PROMPT, 2)
    host.run()
    ((_, fault),) = host.faults()
    assert fault.message == f"ordering returned {answer!r}: (Choice, memory) is needed"
    host.close()
