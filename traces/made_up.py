"""Made-up tokens from numbers alone: for the blocks of an imported trace, and for outputs that nobody recorded.

A token is a hash of what names it and of its position, so that nothing is kept and any stretch is made in one go. The
hash is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over a counter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .events_workload import Content

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def usable_tokens(vocabulary: int, avoid: Collection[int]) -> NDArray[np.int64]:
    """The ids of a vocabulary without those to ``avoid``; all of it, where nothing else is left."""
    usable = np.ones(vocabulary, dtype=bool)
    usable[[token for token in avoid if 0 <= token < vocabulary]] = False
    return np.flatnonzero(usable if usable.any() else ~usable)


class Fillers:
    """Tokens for places that a trace says nothing about, by name and index."""

    def __init__(self, usable: NDArray[np.int64], seed: int) -> None:
        self._usable = _boxed(usable)
        self._seed = seed

    def tokens(self, name: str, start: int, count: int) -> list[int]:
        """``count`` tokens from index ``start`` on."""
        digest = hashlib.blake2b(f"{self._seed} {name}".encode("utf-8", "replace"), digest_size=8).digest()
        places = np.arange(start, start + count, dtype=np.uint64) + np.uint64(int.from_bytes(digest, "little") >> 1)
        made: list[int] = self._usable[_mixed(places) % np.uint64(len(self._usable))].tolist()
        return made


class SourceTokens:
    """Tokens for blocks that are numbered by the source of an imported trace.

    Equal numbers of equal length make equal tokens; a last block that is shorter is another one than the whole block
    of its number.
    """

    def __init__(self, size: int, vocabulary: int, avoid: Collection[int] = (), seed: int = 0) -> None:
        usable = usable_tokens(vocabulary, avoid)
        self._usable = _boxed(usable)
        self._fillers = Fillers(usable, seed)
        self._size = size
        self._seed = np.uint64(_splitmix(seed))

    def tokens(self, content: Content) -> tuple[int, ...]:
        """Tokens for a content, ``content.tokens`` of them."""
        if not content.blocks:
            return ()
        heads = _mixed(np.asarray(content.blocks, dtype=np.uint64) ^ self._seed)
        short = content.tokens % self._size
        if short:
            heads[-1] = _mixed(heads[-1:] ^ np.uint64(short))[0]
        places = np.add.outer(heads, np.arange(self._size, dtype=np.uint64)).ravel()[: content.tokens]
        return tuple(self._usable[_mixed(places) % np.uint64(len(self._usable))].tolist())

    def fillers(self, name: str, start: int, count: int) -> list[int]:
        """Tokens for ``count`` places, from ``start`` on, that the trace says nothing about."""
        return self._fillers.tokens(name, start, count)


def _boxed(usable: NDArray[np.int64]) -> NDArray[Any]:
    """The ids as objects: a token of a prompt is then a pointer to one that is there, not an object of its own."""
    return usable.astype(object)


def _mixed(places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = places * np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _splitmix(seed: int) -> int:
    return int(_mixed(np.asarray([(seed + 1) & _MASK], dtype=np.uint64))[0])
