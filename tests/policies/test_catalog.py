"""Policies by name, and the refusals that say what to do."""

from __future__ import annotations

import sys

import pytest
from coresident.policies.catalog import CATALOG, resolve
from coresident.policies.errors import PolicyFault

OWN = """
import attrs

def last(step=1):
    return lambda view, memory: (view.waiting[-step].step, memory)

class Group:
    first = staticmethod(last)

def broken():
    raise RuntimeError("no table")

def nothing():
    return None

value = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_policies.py").write_text(OWN)
    (tmp_path / "my_failing_policies.py").write_text("raise ZeroDivisionError('at import')")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_policies", None)


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in CATALOG.items() for n in names])
def test_every_entry_is_made_without_parameters(kind, name):
    assert callable(resolve(kind, name))


@pytest.mark.parametrize("name", ["my_policies:last", "my_policies:Group.first"])
def test_a_users_own_policy_is_loaded_by_module_and_attribute(own, name):
    assert callable(resolve("ordering", name, step=2))


def refusal(kind, name, **parameters):
    with pytest.raises(PolicyFault) as caught:
        resolve(kind, name, **parameters)
    return caught.value.message


@pytest.mark.parametrize(
    ("kind", "name", "parameters", "said"),
    [
        ("order", "strict", {}, ["'order'", "abstention, ordering, preparation, quantum, retention"]),
        (
            "ordering",
            "strickt",
            {},
            ["'strickt'", "aging, deadline, edf, fifo, shortest_remaining, strict, weighted_fair", "module:attribute"],
        ),
        ("ordering", "strict", {"shares": 0.1}, ["strict", "shares", "parameters are share"]),
        ("ordering", "fifo", {"share": 0.1}, ["fifo", "share", "parameters are none"]),
        ("ordering", "strict", {"share": 0}, ["strict", "share=0", "0.01 to 0.5"]),
        ("ordering", "aging", {"rate": float("nan")}, ["aging", "rate=nan", "0.01 to 1000"]),
        ("ordering", "deadline", {"slack_ms": 1.5}, ["deadline", "slack_ms=1.5", "whole number"]),
        ("ordering", "edf", {"utility_ms": 0}, ["edf", "utility_ms=0", "1 to 3600000"]),
        ("ordering", "weighted_fair", {"foreground": -1}, ["weighted_fair", "foreground=-1", "0.01 to 1000"]),
        ("ordering", "weighted_fair", {"preparation": 1}, ["parameters are decision, foreground, utility"]),
        ("ordering", "shortest_remaining", {"horizon_ms": float("inf")}, ["horizon_ms=inf", "1 to 3600000"]),
        ("ordering", "shortest_remaining", {"share": 0.6}, ["shortest_remaining", "share=0.6", "0.01 to 0.5"]),
        ("quantum", "arrivals", {"expected": 0}, ["arrivals", "expected=0", "0.001 to 1000"]),
        ("quantum", "arrivals", {"most": 2.0}, ["arrivals", "most=2.0", "whole number from 1 to 1024"]),
        ("preparation", "gain", {"patience_ms": "long"}, ["gain", "patience_ms='long'", "0 to 3600000"]),
        ("retention", "cost", {"clock": 1}, ["cost", "clock", "parameters are none"]),
        ("quantum", "fixed", {"tokens": True}, ["fixed", "tokens=True", "1 to 1024"]),
        ("quantum", "timed", {"target_ms": "5"}, ["timed", "target_ms='5'", "0.1 to 60000"]),
        ("abstention", "confident", {"threshold": 0.4}, ["confident", "threshold=0.4", "0.5 to 1"]),
        ("abstention", "deadline", {"margin": -1}, ["deadline", "margin=-1", "0 to 100"]),
        ("preparation", "idel", {}, ["'idel'", "after_quiet, gain, idle, never", "module:attribute"]),
        ("preparation", "idle", {"quiet_ms": 1}, ["idle", "quiet_ms", "parameters are none"]),
        ("preparation", "after_quiet", {"quiet_ms": -1}, ["after_quiet", "quiet_ms=-1", "0 to 3600000"]),
        ("ordering", "no_such_module:x", {}, ["no_such_module:x", "No module named", "importable"]),
        ("ordering", ":x", {}, ["':x'", "importable"]),
        ("ordering", "my_policies:", {}, ["my_policies:", "importable"]),
        ("ordering", "my_policies:absent", {}, ["absent", "no attribute"]),
        ("ordering", "my_policies:value", {}, ["my_policies:value", "factory"]),
        ("ordering", "my_policies:last", {"stop": 1}, ["stop", "parameters are step"]),
        ("ordering", "my_policies:broken", {}, ["my_policies:broken", "RuntimeError: no table"]),
        ("ordering", "my_policies:nothing", {}, ["my_policies:nothing", "decide(view, memory)"]),
        ("ordering", "my_failing_policies:x", {}, ["ZeroDivisionError: at import"]),
    ],
)
def test_a_refusal_names_what_was_asked_what_there_is_and_what_to_do(own, kind, name, parameters, said):
    message = refusal(kind, name, **parameters)
    assert all(part in message for part in said), message
