"""Tokens from block numbers alone: equal blocks are equal, others differ, and nothing is kept."""

from __future__ import annotations

from coresident.traces.events_workload import Content
from coresident.traces.made_up import SourceTokens
from hypothesis import given
from hypothesis import strategies as st

SIZE = 8
BLOCKS = st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=6, unique=True)


@given(BLOCKS, st.integers(1, SIZE - 1), st.integers(0, 2**31))
def test_a_block_is_the_same_wherever_it_stands_and_a_shorter_one_is_another(blocks, short, seed):
    made = SourceTokens(SIZE, 100_003, avoid=(7,), seed=seed)
    whole = made.tokens(Content(SIZE * len(blocks), tuple(blocks)))
    backwards = made.tokens(Content(SIZE * len(blocks), tuple(reversed(blocks))))
    assert len(whole) == SIZE * len(blocks)
    assert 7 not in whole
    assert whole[:SIZE] == backwards[-SIZE:]
    last = made.tokens(Content(SIZE * (len(blocks) - 1) + short, tuple(blocks)))
    assert last[: -short or None] == whole[: SIZE * (len(blocks) - 1)]
    assert len(last) == SIZE * (len(blocks) - 1) + short
    again = SourceTokens(SIZE, 100_003, avoid=(7,), seed=seed)
    assert again.tokens(Content(SIZE, (blocks[0],))) == whole[:SIZE]
    assert again.fillers("r1", 3, 5) == made.fillers("r1", 0, 8)[3:]


def test_other_blocks_seeds_and_lengths_make_other_tokens():
    made, other = SourceTokens(64, 32_000, seed=1), SourceTokens(64, 32_000, seed=2)
    heads = {made.tokens(Content(64, (block,)))[0:16] for block in range(1, 500)}
    assert len(heads) == 499
    assert made.tokens(Content(64, (1,))) != other.tokens(Content(64, (1,)))
    assert made.tokens(Content(40, (1,))) != made.tokens(Content(64, (1,)))[:40]
    assert made.fillers("r1", 0, 16) != made.fillers("r2", 0, 16)
