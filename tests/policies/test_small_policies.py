"""Quantum, retention and abstention policies."""

from __future__ import annotations

import pytest
from coresident.policies.catalog import RETENTION, resolve
from coresident.policies.views import AbstentionView, QuantumView, RetainedView, RetentionView, WorkClass
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000


def tokens(policy, token_ns, waiting=0):
    return policy(QuantumView(1, token_ns, waiting, WorkClass.FOREGROUND), None)[0]


def test_fixed_gives_its_tokens():
    assert tokens(resolve("quantum", "fixed"), 0) == 8
    assert tokens(resolve("quantum", "fixed", tokens=3), 50 * MS, waiting=4) == 3


def test_timed_lasts_about_its_target_and_shares_it_with_those_who_wait():
    policy = resolve("quantum", "timed", target_ms=100, most=32)
    assert tokens(policy, 10 * MS) == 10
    assert tokens(policy, 10 * MS, waiting=1) == 5
    assert tokens(policy, 10 * MS, waiting=40) == 1
    assert tokens(policy, 1) == 32
    assert tokens(policy, 900 * MS) == 1
    assert tokens(policy, 0) == 1


@given(token_ns=st.integers(1, 10**10), waiting=st.integers(0, 50), most=st.integers(1, 64))
def test_timed_stays_within_its_target_and_its_limits(token_ns, waiting, most):
    given_tokens = tokens(resolve("quantum", "timed", target_ms=50, most=most), token_ns, waiting)
    assert 1 <= given_tokens <= most
    assert given_tokens == 1 or given_tokens * token_ns * (1 + waiting) <= 50 * MS


def kept(handle, last_used, cost_ns=100, size=100, uses=0):
    return RetainedView(handle, size, 10, last_used, uses, cost_ns)


def evicts(policy, entries, memory=None):
    return policy(RetentionView(1000, 1, tuple(entries)), memory)


def test_lru_evicts_what_was_used_least_recently():
    assert evicts(resolve("retention", "lru"), [kept(3, 50), kept(1, 20), kept(2, 20)])[0] == 1


def test_cost_evicts_what_is_cheap_for_its_bytes():
    policy = resolve("retention", "cost")
    assert evicts(policy, [kept(1, 9, cost_ns=500), kept(2, 99, cost_ns=400)])[0] == 2
    assert evicts(policy, [kept(1, 9, cost_ns=500, size=500), kept(2, 9, cost_ns=400)])[0] == 1
    assert evicts(policy, [kept(1, 9, uses=4), kept(2, 9, uses=3)])[0] == 2


def test_cost_lets_dear_prefixes_go_that_are_used_no_more():
    policy, dear, memory = resolve("retention", "cost"), kept(0, 1, cost_ns=1000), None
    for handle in range(1, 20):
        evicted, memory = evicts(policy, [dear, kept(handle, handle + 1)], memory)
        if evicted == 0:
            break
    assert 9 <= handle <= 11

    memory = None
    for handle in range(1, 20):
        # Used again before each eviction, it is never overtaken.
        evicted, memory = evicts(policy, [kept(0, handle + 1, cost_ns=1000), kept(handle, handle + 1)], memory)
        assert evicted == handle


entries = st.lists(
    st.builds(RetainedView, st.integers(), *[st.integers(0, 9)] * 5), min_size=1, unique_by=lambda e: e.handle
)


@pytest.mark.parametrize("name", sorted(RETENTION))
@given(kept_entries=entries)
def test_retention_names_an_entry_until_none_is_left_and_is_pure(name, kept_entries):
    policy, memory = resolve("retention", name), None
    while kept_entries:
        answer = evicts(policy, kept_entries, memory)
        assert answer == evicts(policy, kept_entries, memory)
        hash(answer)
        rest = [e for e in kept_entries if e.handle != answer[0]]
        assert len(rest) == len(kept_entries) - 1
        kept_entries, memory = rest, answer[1]


def reason(policy, stage, at, deadline=100, remaining_ns=0, scores=()):
    return policy(AbstentionView(at, stage, deadline, remaining_ns, scores), None)[0]


@pytest.mark.parametrize("name", ["deadline", "confident"])
@pytest.mark.parametrize("stage", ["accepted", "slice"])
def test_abstains_once_the_answer_would_be_late(name, stage):
    policy = resolve("abstention", name)
    assert reason(policy, stage, 99) is None
    assert reason(policy, stage, 100) == "deadline"
    assert reason(policy, stage, 60, remaining_ns=40) is None
    assert reason(policy, stage, 60, remaining_ns=41) == "deadline"
    assert reason(policy, stage, 10**9, deadline=None, remaining_ns=10**9) is None
    assert reason(resolve("abstention", name, margin=2), stage, 60, remaining_ns=21) == "deadline"
    assert reason(resolve("abstention", name, margin=0), stage, 99, remaining_ns=10**9) is None


@pytest.mark.parametrize("name", ["deadline", "confident"])
def test_an_answer_at_its_deadline_is_in_time(name):
    policy = resolve("abstention", name)
    assert reason(policy, "scored", 100) is None
    assert reason(policy, "scored", 101) == "deadline"
    assert reason(policy, "scored", 10**9, deadline=None) is None


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((("choice", (0.8, 0.2)),), None),
        ((("choice", (0.4, 0.35, 0.25)),), "uncertain"),
        ((("choice", (0.7, 0.3)),), None),
        ((("probability", (0.5, 0.69, 0.31)),), "uncertain"),
        ((("probability", (0.5, 0.1)),), None),
        ((("rank", (0.0, 0.0)),), None),
        ((("choice", (0.9, 0.1)), ("probability", (0.5,))), "uncertain"),
        ((), None),
    ],
)
def test_confident_abstains_when_a_head_does_not_commit_itself(scores, expected):
    policy = resolve("abstention", "confident", threshold=0.7)
    assert reason(policy, "scored", 0, scores=scores) == expected
    assert reason(resolve("abstention", "deadline"), "scored", 0, scores=scores) is None
