"""Layers with sliding windows: a reuse that a window cannot support is refused, never trimmed blindly."""

from __future__ import annotations

import pytest
from coresident.actors.memory.prefixes import EXACT, NONE, PrefixIndex
from coresident.actors.memory.windows import reusable
from coresident.policies.retention.lru import lru
from hypothesis import given
from hypothesis import strategies as st

FULL, WINDOW = None, 1024


def index_with(*kept, windows, grid=1):
    index = PrefixIndex(10**9, lru(), grid, windows, block=64)
    for tokens in kept:
        entry = index.add("m", tokens, 0, 0, aligned=len(tokens))
        entry.ready, entry.users = True, 0
    return index


def positions_kept(window, held):
    """What a ring of ``window`` positions still has of ``held`` tokens; a full layer has all."""
    return range(0 if window is None else max(0, held - window), held)


def positions_needed(window, at):
    """What a layer reads before position ``at``."""
    return range(0 if window is None else max(0, at - window), at)


@given(
    windows=st.lists(st.one_of(st.none(), st.integers(1, 12)), min_size=1, max_size=4),
    held=st.integers(1, 30),
    data=st.data(),
)
def test_what_is_reusable_is_what_every_layer_still_has(windows, held, data):
    wanted = data.draw(st.integers(0, held))
    there = all(set(positions_needed(w, wanted)) <= set(positions_kept(w, held)) for w in windows)
    assert reusable(windows, held, wanted) == (wanted if there else 0)


@pytest.mark.parametrize("windows", [(FULL, WINDOW), (WINDOW, FULL), (FULL, FULL, WINDOW)])
def test_mixed_layers_are_all_asked_not_the_first(windows):
    """One token short of what is held: the full layers could be trimmed, the windowed one could not."""
    kept = tuple(range(2152))
    index = index_with(kept, windows=windows)
    match = index.match("m", (*kept[:-1], 9001, 9002), 1)
    assert (match.matched, match.reused, match.kind) == (2151, 0, NONE)
    whole = index.match("m", (*kept, 9001), 2)
    assert (whole.matched, whole.reused, whole.kind) == (2152, 2152, EXACT)


@pytest.mark.parametrize(("held", "reused"), [(1000, 700), (1024, 700), (1025, 0), (2152, 0)])
def test_a_window_that_has_lost_nothing_may_be_trimmed(held, reused):
    kept = tuple(range(held))
    index = index_with(kept, windows=(FULL, WINDOW))
    assert index.match("m", (*kept[:700], 9001), 1).reused == reused


def test_two_users_with_a_shared_head_never_continue_each_other():
    """The head is shared, the state behind it is one user's; a trim past the window would go on from there."""
    head = tuple(range(1500))
    alice, bob = (*head, *range(3000, 3800)), (*head, *range(4000, 4600))
    index = index_with(alice, windows=(WINDOW,))
    assert index.match("m", bob, 1).reused == 0
    both = index_with(alice, head, windows=(WINDOW,))
    match = both.match("m", bob, 1)
    assert match.reused == len(head)
    assert match.entry is not None
    assert tuple(match.entry.tokens) == head


def test_a_snapshot_at_a_boundary_outlives_the_longer_state():
    """With windows a longer state does not serve in place of a shorter one, so neither supersedes the other."""
    head = tuple(range(1500))
    longer = (*head, *range(3000, 3100))
    assert index_with(head, windows=(WINDOW,)).superseded("m", longer) == []
    assert len(index_with(head, windows=(FULL,)).superseded("m", longer)) == 1
    assert not index_with(longer, windows=(WINDOW,)).covered("m", head)
    assert index_with(longer, windows=(FULL,)).covered("m", head)


def test_a_windowed_model_leaves_other_models_prefixes_alone():
    kept = tuple(range(2000))
    windowed, other = index_with(kept, windows=(WINDOW,)), index_with(kept, windows=())
    prompt = (*kept[:1200], 9001)
    assert windowed.match("m", prompt, 1).reused == 0
    assert other.match("m", prompt, 1).reused == 1200


@pytest.mark.parametrize("held", [255, 256, 257])
def test_on_a_grid_a_window_keeps_only_states_that_end_on_it(held):
    kept = tuple(range(held))
    index = index_with(kept, windows=(100,), grid=256)
    assert index.match("m", (*kept, 9001), 1).reused == (256 if held == 256 else 0)


@pytest.mark.parametrize(
    ("kept", "tokens", "shared"),
    [(1000, 1024, 960), (1024, 1000, 960), (1000, 1025, 0), (1025, 1000, 0)],
)
def test_a_head_is_shared_only_where_both_still_have_all_of_it_in_every_layer(kept, tokens, shared):
    """What has left a window of either is in no block that the other could hold."""
    index = index_with(tuple(range(kept)), windows=(FULL, WINDOW))
    prompt = (*range(990), *range(5000, 5000 + tokens - 990))
    assert index.base("m", prompt, 990, (None, 0))[1] == shared
    assert index_with(tuple(range(kept)), windows=()).base("m", prompt, 990, (None, 0))[1] == 960
