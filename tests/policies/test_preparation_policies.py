"""When preparation may begin, as the shipped policies say."""

from __future__ import annotations

import pytest
from coresident.policies.catalog import PREPARATION, resolve
from coresident.policies.views import PreparationView
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000
views = st.builds(
    lambda quiet, later, busy: PreparationView(quiet + later, busy, quiet),
    st.integers(0, 10**15),
    st.integers(0, 10**12),
    st.integers(0, 9),
)


def begins(policy, at, busy=0, quiet_since=0):
    return policy(PreparationView(at, busy, quiet_since), None)[0]


@pytest.mark.parametrize("busy", [0, 3])
def test_idle_begins_at_once_and_never_does_not_begin(busy):
    assert begins(resolve("preparation", "idle"), 7, busy) == 7
    assert begins(resolve("preparation", "never"), 7, busy) is None


def test_after_quiet_counts_from_the_last_end_and_not_while_others_are_open():
    policy = resolve("preparation", "after_quiet", quiet_ms=2.5)
    assert begins(policy, 100, quiet_since=100) == 100 + 2_500_000
    assert begins(policy, 100 + 2_500_000, quiet_since=100) == 100 + 2_500_000
    assert begins(policy, 9 * MS, quiet_since=100) == 9 * MS
    assert begins(policy, 9 * MS, busy=1, quiet_since=100) is None
    assert begins(resolve("preparation", "after_quiet"), 0) == 250 * MS
    assert begins(resolve("preparation", "after_quiet", quiet_ms=0), 5, quiet_since=5) == 5


@pytest.mark.parametrize("name", sorted(PREPARATION))
@given(view=views)
def test_preparation_chooses_a_time_that_is_not_past_and_is_pure(name, view):
    policy = resolve("preparation", name)
    when, memory = policy(view, None)
    assert (when, memory) == policy(view, None)
    assert when is None or (type(when) is int and when >= view.at)


@given(view=views)
def test_after_quiet_begins_at_the_time_that_it_gave_when_nothing_came_in_between(view):
    policy = resolve("preparation", "after_quiet")
    when, memory = policy(view, None)
    if when is not None:
        assert policy(PreparationView(when, 0, view.quiet_since), memory)[0] == when
