"""Prompts as numbered blocks: numbers made from the ids of a source, or new ones where it has none.

Rule 1: equal numbers mean equal content. Rule 2: a number always has the same length, so a last, shorter block has a
number of its own. Rule 3: the same source gives the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ..events_workload import Content
from .values import MOST


def number_of(*parts: object) -> int:
    """A block's number from whatever names it: 63 bits of BLAKE2b, never 0."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") & MOST or 1


class Named:
    """Numbers blocks by the ids that a source gives them: its own plus 1, or within a ``scope`` by a hash of both."""

    def __init__(self, size: int, scope: str = "") -> None:
        self._size = size
        self._scope = scope
        self._numbers: dict[int, int] = {}

    def content(self, tokens: int, ids: Sequence[int], tail: str = "") -> Content:
        """A sequence. Where no id is left for its last, shorter block, that block is the ``tail`` of its request."""
        full, rest = divmod(tokens, self._size)
        blocks = [self._number(block) for block in ids[:full]]
        if rest and full < len(ids):
            blocks.append(number_of("part", self._scope, ids[full], rest))
        elif rest:
            blocks.append(number_of("tail", self._scope, tail, rest))
        return Content(tokens, tuple(blocks))

    def _number(self, block: int) -> int:
        if not self._scope:
            return block + 1
        if block not in self._numbers:
            self._numbers[block] = number_of("block", self._scope, block)
        return self._numbers[block]


class Unnamed:
    """Numbers blocks of a source that says nothing of its content: all are new, behind a head of ``shared`` tokens.

    Of that head whole blocks are shared.
    """

    def __init__(self, size: int, shared: int = 0) -> None:
        self._size = size
        self._shared = shared // size
        self._last = self._shared

    def content(self, tokens: int) -> Content:
        """A sequence."""
        shared = min(self._shared, tokens // self._size)
        new = -(-tokens // self._size) - shared
        first = self._last + 1
        self._last += new
        return Content(tokens, (*range(1, shared + 1), *range(first, first + new)))


def made(tokens: int, size: int, *name: object) -> Content:
    """A sequence that stands for what no source has, the same for the same name."""
    lengths = [min(size, tokens - start) for start in range(0, tokens, size)]
    return Content(tokens, tuple(number_of("made", *name, index, length) for index, length in enumerate(lengths)))


def mismatch(tokens: int, count: int, size: int, short: bool = False) -> str | None:
    """What is wrong between a length and the number of its ids; ``short``: a last, shorter block needs none."""
    if _fits(tokens, count, size, short):
        return None
    return (
        f"{tokens} tokens have {count} ids of blocks: with {size} tokens a block it must be {-(-tokens // size)}; "
        f"{_fitting(tokens, count, short)}"
    )


def _fits(tokens: int, count: int, size: int, short: bool) -> bool:
    return count == -(-tokens // size) or (short and count == tokens // size)


def _fitting(tokens: int, count: int, short: bool) -> str:
    """Which block size would fit: a power of two if there is one."""
    powers = [str(2**n) for n in range(17) if count and _fits(tokens, count, 2**n, short)]
    if powers:
        return f"blocks of {' or '.join(powers[:3])} tokens would fit"
    if not 1 < count <= tokens or -(-tokens // count) > (tokens - 1) // (count - 1):
        return "no block size fits"
    return f"blocks of {-(-tokens // count)} to {(tokens - 1) // (count - 1)} tokens would fit"
