"""What a prompt may reuse of what is retained, and what goes when bytes run short."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.errors import InvalidRequest
from coresident.actors.memory.entries import common_head
from coresident.actors.memory.prefixes import EXACT, NONE, STATIC, PrefixIndex
from coresident.policies.errors import PolicyFault
from coresident.policies.retention.lru import lru
from hypothesis import given
from hypothesis import strategies as st

CHAT = tuple(range(100))


def keep(index, tokens, identity="m", at=0, ready=True):
    """Retain a prefix as its owner does: room, save, ready. A token takes a byte."""
    for entry in index.room(len(tokens), at) or ():
        index.remove(entry.handle, evicted=True)
    entry = index.add(identity, tokens, 0, at, aligned=len(tokens))
    if ready:
        entry.ready, entry.users = True, 0
    return entry


def index_with(*prompts, budget=10_000, grid=1, retention=None):
    index = PrefixIndex(budget, retention or lru(), grid)
    for tokens in prompts:
        keep(index, tokens)
    return index


CASES = {
    "R19 an exact continuation computes the suffix only": ((*CHAT, 7, 8), "m", 100, 100, EXACT),
    "R20 the same standing part, another history": ((*CHAT[:60], 999, 998), "m", 60, 60, STATIC),
    "R21 at least one token of the prompt is computed": (CHAT, "m", 99, 99, STATIC),
    "R21 a prompt that is all inside": (CHAT[:50], "m", 49, 49, STATIC),
    "R21 one token more": ((*CHAT, 7), "m", 100, 100, EXACT),
    "R21 a prompt of one token": (CHAT[:1], "m", 0, 0, NONE),
    "R21 another first token": ((999, *CHAT[1:]), "m", 0, 0, NONE),
    "R21 another identity": ((*CHAT, 7), "other template", 0, 0, NONE),
}


@pytest.mark.parametrize(("prompt", "identity", "matched", "reused", "kind"), CASES.values(), ids=CASES.keys())
def test_R19_R20_R21_what_a_prompt_reuses(prompt, identity, matched, reused, kind):
    match = index_with(CHAT).match(identity, prompt, at=1)
    assert (match.matched, match.reused, match.kind) == (matched, reused, kind)
    assert (match.entry is None) == (kind == NONE)


def test_R21_what_is_not_synchronized_is_never_claimed():
    index = index_with()
    keep(index, CHAT, ready=False)
    assert index.match("m", (*CHAT, 1), at=1).reused == 0
    assert index.awaits("m", (*CHAT, 1))


@pytest.mark.parametrize(("shared", "on_grid"), [(255, 0), (256, 256), (257, 256), (511, 256), (512, 512)])
def test_R21_the_step_is_not_the_offset(shared, on_grid):
    """Every token counts without a grid, whole chunks with one; never more than is shared."""
    kept = tuple(range(1000))
    prompt = (*kept[:shared], 5000, 5001)
    assert index_with(kept).match("m", prompt, 1).reused == shared
    match = index_with(kept, grid=256).match("m", prompt, 1)
    assert (match.matched, match.reused) == (shared, on_grid)


def test_on_a_grid_only_what_was_computed_in_whole_chunks_is_reused():
    """Tokens that were decoded, or prefilled in parts of a chunk, fill chunks without being chunks."""
    index = index_with(grid=256)
    entry = keep(index, tuple(range(1000)))
    entry.aligned = 512
    match = index.match("m", (*range(900), 5000), 1)
    assert (match.matched, match.reused) == (900, 512)


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)


@given(kept=st.lists(tokens, max_size=5), prompt=tokens, grid=st.integers(1, 4))
def test_R21_claims_are_bounded_and_true(kept, prompt, grid):
    index = index_with(*kept, grid=grid)
    match = index.match("m", prompt, 1)
    assert 0 <= match.reused <= match.matched <= len(prompt) - 1
    longest = max((k for k in range(len(prompt)) for t in kept if t[:k] == prompt[:k] and len(t) >= k), default=0)
    assert match.matched == longest
    assert match.reused == longest - longest % grid
    if match.entry is not None:
        assert tuple(match.entry.tokens[: match.reused]) == prompt[: match.reused]
        assert match.kind == (EXACT if len(match.entry.tokens) == match.matched else STATIC)


def test_a_byte_limit_holds():
    """Of three halves of a KiB under a limit of one KiB, two remain."""
    index = PrefixIndex(1024, lru())
    handles = [keep(index, [n] * 512, at=n).handle for n in range(3)]
    assert [entry.handle for entry in index.entries()] == handles[1:]
    assert index.used == 1024
    assert index.statistics().evictions == 1


def test_room_in_the_count_and_none_in_bytes_is_answered_at_once():
    index = PrefixIndex(100, lru())
    keep(index, [1] * 100).users = 1
    assert index.room(1, at=1) is None
    assert PrefixIndex(0, lru()).room(1, at=1) is None


def test_a_prefix_larger_than_the_whole_budget_is_not_retained_and_evicts_nobody():
    index = PrefixIndex(100, lru())
    keep(index, [1] * 60)
    assert index.room(101, at=1) is None
    with pytest.raises(InvalidRequest, match="40 of 100 are free"):
        index.add("m", [2] * 101, 0, 1)
    assert len(index.entries()) == 1


def test_what_is_in_use_is_not_evicted():
    """A prefix between its match and its restore stays, though it is the oldest."""
    index = PrefixIndex(100, lru())
    busy, idle = keep(index, [1] * 50, at=1), keep(index, [2] * 50, at=2)
    busy.users = 1
    assert index.room(50, at=3) == [idle]
    assert index.room(51, at=3) is None


def test_what_goes_anyway_is_not_evicted_twice():
    index = PrefixIndex(100, lru())
    going, other = keep(index, [1] * 60, at=1), keep(index, [2] * 40, at=2)
    assert index.room(60, at=3, going=[going]) == []
    assert index.room(70, at=3, going=[going]) == [other]


def test_superseded_and_covered():
    index = index_with(CHAT[:40], CHAT[:70], (999,))
    assert [len(e.tokens) for e in index.superseded("m", CHAT[:70])] == [40, 70]
    assert index.superseded("other", CHAT) == []
    assert index.covered("m", CHAT[:55])
    assert not index.covered("m", CHAT[:71])


@pytest.mark.parametrize("awaited", [True, False])
def test_a_save_is_awaited_only_for_what_it_adds(awaited):
    index = index_with(CHAT[:40])
    keep(index, CHAT[:60] if awaited else CHAT[:40], ready=False)
    assert index.awaits("m", CHAT) == awaited
    assert not index.awaits("other", CHAT)


def raises(view, memory):
    raise KeyError("broken")


@pytest.mark.parametrize("policy", [raises, lambda view, memory: (12345, None), lambda view, memory: None])
def test_a_broken_retention_policy_is_replaced_and_reported(policy):
    index = PrefixIndex(100, policy)
    oldest = keep(index, [1] * 60, at=1)
    keep(index, [2] * 40, at=2)
    assert index.room(50, at=3) == [oldest]
    assert isinstance(index.policy.take_fault(), PolicyFault)
    assert index.room(50, at=4) == [oldest]
    assert index.policy.take_fault() is None


@pytest.mark.parametrize(("budget", "grid"), [(-1, 1), (0, 0)])
def test_impossible_limits_are_refused(budget, grid):
    with pytest.raises(InvalidRequest):
        PrefixIndex(budget, lru(), grid)


@given(st.integers(0, 1200), st.integers(0, 1200), st.none() | st.integers(0, 1199))
def test_the_common_head_of_long_prompts_ends_at_the_first_difference(one, other, differs):
    left, right = np.arange(one), np.arange(other)
    shared = min(one, other)
    if differs is not None and differs < shared:
        right[differs:] += 1
        shared = differs
    assert common_head(left, right) == shared
