"""Blocks keep what sequences have in common, to the token, and nothing else of them."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.traces.audit.tokens import AuditTokens
from coresident.traces.blocks import BlockNotes, BlockTable, BlockTokens
from coresident.traces.codec import Malformed
from coresident.traces.events_workload import Content
from hypothesis import given, settings
from hypothesis import strategies as st

SIZE = 4
# Few different tokens, so that heads are shared at every length.
SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=1, max_size=12)


def common(one, other):
    different = [index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
    return different[0] if different else min(len(one), len(other))


@settings(deadline=None)
@given(SEQUENCES, st.integers(0, 5))
def test_made_up_sequences_share_exactly_the_heads_that_the_recorded_ones_share(sequences, seed):
    table, notes = BlockTable(SIZE), BlockNotes(SIZE)
    contents = [table.describe(sequence) for sequence in sequences]
    for content in contents:
        notes.learn(content)
    made = BlockTokens(notes, vocabulary=100_003, avoid=(5, 6), seed=seed)
    replayed = [made.tokens(content) for content in contents]
    for one, made_one in zip(sequences, replayed, strict=True):
        assert len(one) == len(made_one)
        for other, made_other in zip(sequences, replayed, strict=True):
            assert common(one, other) == common(made_one, made_other)


@settings(deadline=None)
@given(SEQUENCES)
def test_numbers_do_not_depend_on_the_tokens(sequences):
    """Two recordings of the same structure are equal: the tokens are only renamed."""
    renamed = [[(token * 7 + 3) % 11 for token in sequence] for sequence in sequences]
    one, other = BlockTable(SIZE), BlockTable(SIZE)
    assert [one.describe(s) for s in sequences] == [other.describe(s) for s in renamed]


def test_tokens_to_avoid_are_not_made_up_and_seeds_differ():
    notes = BlockNotes(64)
    content = BlockTable(64).describe(range(1000))
    notes.learn(content)
    tokens = BlockTokens(notes, vocabulary=10, avoid=(0, 3)).tokens(content)
    assert set(tokens) <= set(range(10)) - {0, 3}
    assert BlockTokens(notes, 5000, seed=1).tokens(content) != BlockTokens(notes, 5000, seed=2).tokens(content)
    assert BlockTokens(notes, 5000, seed=1).tokens(content) == BlockTokens(notes, 5000, seed=1).tokens(content)


@settings(deadline=None)
@given(SEQUENCES, st.sets(st.integers(0, 11)))
def test_heads_that_are_shared_with_what_is_live_are_never_forgotten(sequences, live):
    """The tokens that an audit makes up share them exactly, however small the table is."""
    contents = []
    table = BlockTable(SIZE, limit=1, live=lambda: {b for p, c in enumerate(contents) if p in live for b in c.blocks})
    tokens = AuditTokens(SIZE)
    for sequence in sequences:
        table.trim()
        contents.append(table.describe(sequence))
        tokens.learn(contents[-1])
    made = [tokens.tokens(content) for content in contents]
    for place in live & set(range(len(sequences))):
        for later in range(place, len(sequences)):
            assert common(made[place], made[later]) == common(sequences[place], sequences[later])


def test_a_table_forgets_at_its_limit_and_goes_on_with_new_numbers():
    table = BlockTable(SIZE, limit=3)
    first = table.describe(range(12))
    assert first.blocks == (1, 2, 3)
    table.trim()
    assert table.describe(range(12)).blocks == (4, 5, 6)


def test_ids_are_there_when_asked_for():
    assert BlockTable(SIZE).describe((5, 6), ids=True).ids == (5, 6)
    assert BlockTable(SIZE).describe((5, 6)).ids is None
    assert BlockTable(SIZE).describe(()) == Content(0, ())


def test_a_long_chain_of_shared_heads_is_made_without_recursion():
    table, notes = BlockTable(2048), BlockNotes(2048)
    contents = [table.describe(np.arange(length)) for length in range(1, 1500)]
    for content in contents:
        notes.learn(content)
    made = BlockTokens(notes, 32_000)
    assert made.tokens(contents[-1])[:50] == made.tokens(contents[49])


@pytest.mark.parametrize(
    ("contents", "what"),
    [
        ([Content(2**40, (1, 2))], "tokens is 1099511627776: sequences of up to 16777216 are read"),
        ([Content(9, (1, 2))], "blocks are 2 of 4 tokens, for 9 tokens"),
        ([Content(4, (2,))], "block 2 has 4 tokens here, and None before"),
        ([Content(4, (1,)), Content(3, (1,))], "block 1 has 3 tokens here, and 4 before"),
        ([Content(4, (1,), ((1, 1, 2),))], "shares has"),
        ([Content(4, (1,), ((1, 0, 2),))], "shares has"),
        ([Content(4, (1,)), Content(4, (2,), ((2, 1, 5),))], "shares has"),
        ([Content(4, (1,)), Content(4, (2,), ((2, 1, 0),))], "shares has"),
        ([Content(4, (1,)), Content(4, (2,)), Content(4, (2,), ((2, 1, 1),))], "shares has"),
    ],
)
def test_notes_that_contradict_each_other_are_refused(contents, what):
    notes = BlockNotes(SIZE)
    for content in contents[:-1]:
        notes.learn(content)
    with pytest.raises(Malformed, match=what):
        notes.learn(contents[-1])
