"""A policy of any kind that misbehaves: replaced, reported once by its kind, and nobody's work is lost."""

from __future__ import annotations

import pytest
from coresident.policies.catalog import CATALOG, resolve
from coresident.policies.errors import PolicyFault

from support.bench_host import open_bench
from support.promises import check_promises


def raises(view, memory):
    raise ZeroDivisionError("no idea")


def leaves(view, memory):
    raise SystemExit(3)


BROKEN = {
    "raises": raises,
    "leaves the process": leaves,
    "answers nothing": lambda view, memory: None,
    "answers without memory": lambda view, memory: (1,),
    "answers nonsense": lambda view, memory: (object(), memory),
    "answers not a number": lambda view, memory: (float("nan"), memory),
}


def work(host):
    """Something for every kind of policy to decide: prefixes that don't all fit, a decision, a preparation."""
    asked = [host.generate(range(first, first + 40), 5) for first in (1, 30, 60)]
    asked += [host.decide([[1, 2], [3]], heads=("relevance", "safe"))]
    host.run_on()
    asked += [host.prepare(range(1, 25))]
    host.run_on()
    return asked


@pytest.mark.parametrize("kind", sorted(CATALOG))
@pytest.mark.parametrize("policy", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_policy_of_any_kind_is_replaced_and_reported_once(kind, policy):
    host = open_bench(**{kind: policy}, retained=900)
    asked = work(host)
    assert [(name, type(error)) for name, error in host.faults()] == [(kind, PolicyFault)]
    assert {host.ends[request].outcome for request in asked} == {"completed", "prepared"}
    check_promises(host)
    host.close()


@pytest.mark.parametrize("kind", sorted(CATALOG))
def test_an_answer_that_is_no_pair_is_told_with_what_is_needed(kind):
    host = open_bench(**{kind: lambda view, memory: 42}, retained=900)
    work(host)
    ((_, fault),) = host.faults()
    assert fault.message.startswith(f"{kind} returned 42: (")
    assert fault.message.endswith(", memory) is needed")
    host.close()


@pytest.mark.parametrize("kind", sorted(CATALOG))
def test_a_policy_that_breaks_later_is_replaced_then(kind):
    (name, *_) = CATALOG[kind]
    honest = resolve(kind, name)

    def breaks(view, memory):
        calls = memory or 0
        if calls == 2:
            raise RuntimeError("enough")
        choice, _ = honest(view, None)
        return choice, calls + 1

    host = open_bench(**{kind: breaks}, retained=900, chunk=4)
    asked = work(host) + work(host)
    assert [(name, type(error)) for name, error in host.faults()] == [(kind, PolicyFault)]
    assert all(host.ends[request].outcome in ("completed", "prepared") for request in asked)
    host.close()


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in CATALOG.items() for n in names])
def test_no_shipped_policy_is_at_fault_in_ordinary_work(kind, name):
    host = open_bench(**{kind: name}, retained=900)
    work(host)
    assert not host.faults()
    host.close()
