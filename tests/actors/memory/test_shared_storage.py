"""Bytes of retained prefixes that share heads, against a count of the blocks that somebody holds."""

from __future__ import annotations

from coresident.actors.memory.sharing import SharedStorage
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

BLOCK = 4
TOKEN_BYTES = 3


class Blocks(RuleBasedStateMachine):
    """The model keeps lists of blocks, each ``[origin, tokens]`` and known by what it is, not by what it holds."""

    def __init__(self):
        super().__init__()
        self.storage = SharedStorage(TOKEN_BYTES)
        self.held = {}
        self.charged = {}
        self.count = 0

    @rule(tokens=st.integers(1, 30), base=st.integers(0, 9), part=st.integers(0, 9))
    def add(self, tokens, base, part):
        self.count += 1
        handles = list(self.held)
        behind = handles[base % len(handles)] if handles and base else None
        head = [] if behind is None else [b for b in self.held[behind] if b[1] == BLOCK][:part]
        shared = len(head) * BLOCK
        own = [[self.count, min(BLOCK, tokens - n)] for n in range(0, tokens, BLOCK)]
        size = self.storage.add(self.count, shared + tokens, behind if shared else None, shared)
        assert size == tokens * TOKEN_BYTES
        self.charged[self.count] = size
        self.held[self.count] = [*head, *own]

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 9))
    def remove(self, which):
        handle = list(self.held)[which % len(self.held)]
        before = self.storage.used_without([handle])
        for origin, size in self.storage.remove(handle).items():
            assert 0 < size <= self.charged[origin]
            self.charged[origin] -= size
        del self.held[handle]
        assert self.storage.used == before

    @invariant()
    def everybody_counts_the_same(self):
        unique = {id(block): block for blocks in self.held.values() for block in blocks}.values()
        whole = sum(block[1] for blocks in self.held.values() for block in blocks)
        assert self.storage.used == sum(block[1] for block in unique) * TOKEN_BYTES
        assert self.storage.shared == whole * TOKEN_BYTES - self.storage.used
        gone = set(list(self.held)[::3])
        used, frees = self.storage.used_without(gone), self.storage.frees(gone)
        for handle in self.held.keys() - gone:
            assert frees.get(handle, 0) == used - self.storage.used_without({*gone, handle})
        for origin, charged in self.charged.items():
            assert charged == sum(block[1] for block in unique if block[0] == origin) * TOKEN_BYTES


Blocks.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestSharedStorage = Blocks.TestCase


def test_what_lets_go_of_its_head_holds_its_own_tokens_only():
    storage = SharedStorage(1)
    storage.add(1, 10)
    storage.add(2, 20, base=1, shared=8)
    storage.detach(2)
    assert storage.remove(1) == {1: 10}
    assert (storage.used, storage.remove(2)) == (12, {2: 12})
