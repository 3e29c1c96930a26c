"""Content without content: token sequences as numbered blocks, and back to made-up tokens of the same structure.

A recorder numbers blocks of tokens in order of first appearance, under the block before them. What a new block has in
common with its nearest sibling is noted to the token: of a set of sequences, a sorted order has the longest common
head next door. So two sequences made up from the notes share exactly the head that the recorded ones shared, and
nothing else of them is known. Block numbers mean nothing outside their trace.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from .codec import Malformed
from .events_workload import Content
from .made_up import Fillers, usable_tokens

LONGEST = 2**24
_WIDTH = 4


@attrs.define
class _Siblings:
    """Blocks under one parent: by content, and in the order of their content (big-endian, so bytes sort as tokens)."""

    numbers: dict[bytes, int] = attrs.field(factory=dict)
    ordered: list[bytes] = attrs.field(factory=list)
    oldest: dict[bytes, int] = attrs.field(factory=dict)

    def nearest(self, data: bytes) -> tuple[int, int]:
        """The longest head in common with a sibling, as the oldest sibling that has it and its tokens; else ``(0, 0)``.

        Which sibling is named depends on the structure of what was recorded and not on the tokens themselves.
        """
        place = bisect_left(self.ordered, data)
        near = self.ordered[max(0, place - 1) : place + 1]
        shared = max((_common(data, other) for other in near), default=0)
        if not shared:
            return 0, 0
        head = data[: shared * _WIDTH]
        if head not in self.oldest:
            self.oldest[head] = min(self._with_head(head))
        return self.oldest[head], shared

    def _with_head(self, head: bytes) -> Iterator[int]:
        for place in range(bisect_left(self.ordered, head), len(self.ordered)):
            if not self.ordered[place].startswith(head):
                return
            yield self.numbers[self.ordered[place]]

    def add(self, data: bytes, number: int) -> None:
        self.numbers[data] = number
        self.ordered.insert(bisect_left(self.ordered, data), data)

    def only(self, keep: Collection[int]) -> _Siblings:
        """Those that are kept."""
        numbers = {data: number for data, number in self.numbers.items() if number in keep}
        return _Siblings(numbers, sorted(numbers))


class Describes(Protocol):
    """What tells the content of a sequence."""

    def describe(self, tokens: Sequence[int], ids: bool = False) -> Content: ...

    def trim(self) -> None: ...


class BlockTable:
    """Numbers the blocks of a recording.

    Holds about 400 bytes for each distinct block. With more than ``limit`` of them, :meth:`trim` forgets all but those
    that ``live`` names (with every block before them), so that a recording can go on for ever; sequences that were
    forgotten then look new once.
    """

    def __init__(self, size: int, limit: int = 262_144, live: Callable[[], Collection[int]] = frozenset) -> None:
        self._size = size
        self._limit = self._most = limit
        self._live = live
        self._last = 0
        self._held = 0
        self._children: dict[int, _Siblings] = {}

    def describe(self, tokens: Sequence[int], ids: bool = False) -> Content:
        """The content of a sequence; with ``ids`` its tokens too."""
        data = np.asarray(tokens, dtype=">u4").tobytes()
        blocks: list[int] = []
        shares: list[tuple[int, int, int]] = []
        parent = 0
        for start in range(0, len(data), self._size * _WIDTH):
            piece = data[start : start + self._size * _WIDTH]
            siblings = self._children.setdefault(parent, _Siblings())
            number = siblings.numbers.get(piece)
            if number is None:
                number, other, shared = self._new(siblings, piece)
                if shared:
                    shares.append((number, other, shared))
            blocks.append(number)
            parent = number
        return Content(len(tokens), tuple(blocks), tuple(shares), tuple(tokens) if ids else None)

    def trim(self) -> None:
        """Between two deliveries: forget what does not matter, if the table is full."""
        if self._held < self._most:
            return
        live = self._live()
        kept = {parent: some.only(live) for parent, some in self._children.items() if parent == 0 or parent in live}
        self._children = {parent: some for parent, some in kept.items() if some.numbers}
        self._held = sum(len(some.numbers) for some in self._children.values())
        self._most = max(self._limit, 2 * self._held)

    def _new(self, siblings: _Siblings, piece: bytes) -> tuple[int, int, int]:
        other, shared = siblings.nearest(piece)
        self._last += 1
        self._held += 1
        siblings.add(piece, self._last)
        return self._last, other, shared


class BlockNotes:
    """What a trace says about its blocks: lengths and shared heads.

    Numbers that are not ``dense`` come from an imported trace's source: nothing is kept of them.
    """

    def __init__(self, size: int, dense: bool = True) -> None:
        self.size = size
        self._dense = dense
        self.shares: dict[int, tuple[int, int]] = {}
        self._lengths: dict[int, int] = {}

    def learn(self, content: Content) -> None:
        """Take the notes of a content, in the order of the trace.

        Raises :class:`Malformed` when they contradict earlier ones.
        """
        if content.tokens > LONGEST:
            raise Malformed(f"tokens is {content.tokens}: sequences of up to {LONGEST} are read")
        if len(content.blocks) != -(-content.tokens // self.size):
            raise Malformed(f"blocks are {len(content.blocks)} of {self.size} tokens, for {content.tokens} tokens")
        if not self._dense:
            if content.shares or 0 in content.blocks:
                raise Malformed("blocks of a source are numbered from 1 and have no shares")
            return
        known = len(self._lengths)
        for index, block in enumerate(content.blocks):
            length = min(self.size, content.tokens - index * self.size)
            if block == len(self._lengths) + 1:
                self._lengths[block] = length
            elif self._lengths.get(block) != length:
                raise Malformed(f"block {block} has {length} tokens here, and {self._lengths.get(block)} before")
        for block, other, shared in content.shares:
            most = min(self._lengths.get(block, 0), self._lengths.get(other, 0))
            if not 0 < other < block or block <= known or not 1 <= shared <= most:
                raise Malformed(f"shares has {[block, other, shared]}: a new block, an earlier one, and tokens of both")
            self.shares[block] = (other, shared)


class BlockTokens:
    """Makes up tokens for the blocks of a trace.

    Equal blocks get equal tokens, blocks that share a head share exactly it (up to chance: one in the vocabulary's size
    for each pair of siblings), and tokens in ``avoid`` are not used. The same seed and vocabulary give the same tokens.
    """

    def __init__(self, notes: BlockNotes, vocabulary: int, avoid: Collection[int] = (), seed: int = 0) -> None:
        self._usable = usable_tokens(vocabulary, avoid)
        self._fillers = Fillers(self._usable, seed)
        self._notes = notes
        self._size = notes.size
        self._seed = seed
        self._made: dict[int, NDArray[np.int64]] = {}

    def tokens(self, content: Content) -> tuple[int, ...]:
        """Tokens for a content that was learned, ``content.tokens`` of them."""
        if not content.blocks:
            return ()
        whole = np.concatenate([self._block(block) for block in content.blocks])
        return tuple(whole[: content.tokens].tolist())

    def fillers(self, name: str, start: int, count: int) -> list[int]:
        """Tokens for ``count`` places, from ``start`` on, that the trace says nothing about."""
        return self._fillers.tokens(name, start, count)

    def _block(self, block: int) -> NDArray[np.int64]:
        """A whole block of tokens; heads that are shared are made first, without recursion."""
        chain = [block]
        while chain[-1] not in self._made and chain[-1] in self._notes.shares:
            chain.append(self._notes.shares[chain[-1]][0])
        for number in reversed(chain):
            if number not in self._made:
                self._made[number] = self._make(number)
        return self._made[block]

    def _make(self, block: int) -> NDArray[np.int64]:
        data = hashlib.shake_128(f"{self._seed} {block}".encode()).digest(self._size * _WIDTH)
        places = np.frombuffer(data, dtype="<u4").astype(np.int64) % len(self._usable)
        other, shared = self._notes.shares.get(block, (0, 0))
        if shared < self._size:
            places[shared] = block % len(self._usable)
        made = self._usable[places]
        if shared:
            head = self._made[other]
            made[:shared] = head[:shared]
            if shared < self._size and made[shared] == head[shared]:
                made[shared] = self._usable[(block + 1) % len(self._usable)]
        return made


def _common(one: bytes, other: bytes) -> int:
    """Whole tokens that two blocks have in common at their heads."""
    length = min(len(one), len(other))
    different = int.from_bytes(one[:length], "big") ^ int.from_bytes(other[:length], "big")
    return (length * 8 - different.bit_length()) // (8 * _WIDTH)
