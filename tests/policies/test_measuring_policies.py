"""Policies that go by what was measured: quantum by arrivals, preparation by gain, and how long retention keeps."""

from __future__ import annotations

import itertools

import pytest
from coresident.policies.catalog import resolve
from coresident.policies.views import PreparationView, QuantumView, RetainedView, RetentionView, WorkClass
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000
SECOND = 1000 * MS


def runs(policy, seen, token_ns=10 * MS):
    """The tokens of runs submitted one after another; ``seen`` are (time, decisions so far)."""
    tokens, memory = [], None
    for at, decisions in seen:
        view = QuantumView(1, token_ns, 0, WorkClass.FOREGROUND, at, decisions)
        answer = policy(view, memory)
        assert answer == policy(view, memory)
        hash(answer)
        tokens.append(answer[0])
        memory = answer[1]
    return tokens, memory


def test_arrivals_gives_long_runs_to_a_quiet_device_and_short_ones_to_a_busy_one():
    policy = resolve("quantum", "arrivals", expected=0.25, most=32, window_ms=2000)
    quiet, _ = runs(policy, [(n * SECOND, 0) for n in range(5)])
    assert quiet == [32] * 5
    # Ten decisions a second: 25 ms for a quarter of one, and a token takes 10 ms.
    busy, _ = runs(policy, [(n * SECOND // 10, n) for n in range(200)])
    assert busy[0] == 32
    assert busy[-1] == 2
    assert all(later <= sooner for sooner, later in itertools.pairwise(busy))


def test_arrivals_waits_for_a_measurement_with_one_token():
    assert runs(resolve("quantum", "arrivals"), [(0, 0), (SECOND, 0)], token_ns=0)[0] == [1, 1]


gaps = st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, 5)), min_size=1, max_size=30)


def summed(pairs):
    at = decisions = 0
    for elapsed, new in pairs:
        at, decisions = at + elapsed, decisions + new
        yield at, decisions


@given(
    pairs=gaps,
    token_ns=st.integers(1, SECOND),
    expected=st.sampled_from([0.001, 0.25, 3]),
    most=st.integers(1, 1024),
)
def test_arrivals_keeps_its_bounds_and_is_back_at_most_in_the_stated_time(pairs, token_ns, expected, most):
    window = 2000 * MS
    policy = resolve("quantum", "arrivals", expected=expected, most=most)
    seen = list(summed(pairs))
    tokens, memory = runs(policy, seen, token_ns)
    assert all(1 <= n <= most for n in tokens)
    assert tokens[-1] == 1 or tokens[-1] * token_ns * memory.rate <= expected * (1 + 1e-9)
    silence = int(window * memory.rate * token_ns * most / expected) + 1
    later = QuantumView(1, token_ns, 0, WorkClass.FOREGROUND, seen[-1][0] + silence, seen[-1][1])
    assert policy(later, memory)[0] == most


def begins(policy, at=0, **fields):
    return policy(PreparationView(at, **{"open": 0, "quiet_since": 0} | fields), None)[0]


def test_gain_begins_at_once_where_nothing_is_known_and_where_pauses_are_long():
    policy = resolve("preparation", "gain")
    assert begins(policy, 7) == 7
    assert begins(policy, 7, cost_ns=800 * MS) == 7
    assert begins(policy, cost_ns=800 * MS, thinks=(10 * SECOND,) * 3) == 0
    assert begins(policy, cost_ns=800 * MS, thinks=(10 * MS,) * 5 + (10 * SECOND,) * 5) == 0


def test_gain_leaves_short_pauses_alone():
    policy = resolve("preparation", "gain", delay_ms=25)
    thinks = (5 * MS, 8 * MS, 6 * MS)
    assert begins(policy, cost_ns=800 * MS, thinks=thinks) == 8 * MS
    assert begins(policy, 8 * MS, cost_ns=800 * MS, thinks=thinks) == 8 * MS
    assert begins(policy, 9 * MS, cost_ns=800 * MS, thinks=thinks) == 9 * MS
    assert begins(policy, 100 * MS, cost_ns=800 * MS, thinks=thinks, quiet_since=100 * MS) == 108 * MS
    # One of them was long: after the short ones it is the long one that is expected.
    assert begins(policy, cost_ns=800 * MS, thinks=(*thinks, 60 * MS)) == 6 * MS


def test_gain_waits_out_its_patience_when_most_was_wasted_and_while_others_are_open():
    policy = resolve("preparation", "gain", patience_ms=300)
    assert begins(policy, cost_ns=MS, computed=100, wasted=80) == 300 * MS
    assert begins(policy, cost_ns=MS, computed=100, wasted=20) == 0
    assert begins(policy, 301 * MS, cost_ns=MS, computed=100, wasted=100) == 301 * MS
    assert begins(policy, cost_ns=MS, open=1) is None
    assert begins(resolve("preparation", "gain", patience_ms=0), 3, cost_ns=MS, thinks=(2,) * 9) == 3


times = st.integers(0, 20 * SECOND)


@given(quiet=times, later=times, cost=times, thinks=st.lists(times, max_size=16), computed=times, share=st.floats(0, 1))
def test_gain_begins_within_its_patience_and_then_when_it_said(quiet, later, cost, thinks, computed, share):
    policy = resolve("preparation", "gain", patience_ms=2000)
    known = {"cost_ns": cost, "thinks": tuple(thinks), "computed": computed, "wasted": int(computed * share)}
    at = quiet + later
    when = begins(policy, at, quiet_since=quiet, **known)
    assert at <= when <= max(at, quiet + 2000 * MS)
    assert begins(policy, when, quiet_since=quiet, **known) == when


entries = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=6)


def evictions_until_gone(name, kept, costs):
    """How often ``name`` evicts before the entry 0, the dearest and never used again, while new ones replace others."""
    policy, memory = resolve("retention", name), None
    for count in range(10_000):
        evicted, memory = policy(RetentionView(count, 1, tuple(kept)), memory)
        if evicted == 0:
            return count
        cost = costs[count % len(costs)]
        fresh = RetainedView(1000 + count, cost[1], 1, 1000 + count, cost[2], cost[0])
        kept = [*(entry for entry in kept if entry.handle != evicted), fresh]
    raise AssertionError(f"{name} never evicts what nobody uses")


@pytest.mark.parametrize("name", ["lru", "cost"])
@given(others=entries, costs=entries, dear=st.integers(1, 500))
def test_retention_gives_up_what_nobody_uses_within_the_stated_evictions(name, others, costs, dear):
    kept = [RetainedView(0, 1, 1, 5, 0, dear)]
    kept += [RetainedView(n, size, 1, n, uses, cost) for n, (cost, size, uses) in enumerate(others, 1)]
    n = len(others)
    least = min((uses + 1) * cost / size for cost, size, uses in [*others, *costs])
    bound = sum(entry.last_used <= 5 for entry in kept[1:]) if name == "lru" else (n + 1) * (dear / least + 1)
    assert evictions_until_gone(name, kept, costs) <= bound
