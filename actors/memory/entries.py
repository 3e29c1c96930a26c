"""Retained prefixes as values: one entry, what a prompt found, and the counts of them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ...policies.views import RetainedView

EXACT = "exact_continuation"
STATIC = "static_prefix"
NONE = "none"
Tokens: TypeAlias = Sequence[int] | NDArray[np.int64]
_WINDOW = 256


@attrs.define(eq=False)
class Entry:
    """One retained prefix.

    ``aligned`` tokens of it were computed in whole chunks of the grid, in order from position 0. Its save stored
    ``bytes``, behind the first ``shared`` tokens of entry ``base``. ``users`` counts the steps in flight: its own save,
    saves behind it, restores and files; ``conversation`` is whose it is. It is matched only once ``ready``: what was
    not evaluated and synchronized is never claimed. Prompts may wait until it is, where it is ``awaited``. One that is
    ``doomed`` is not kept when its save ends.
    """

    handle: int
    identity: str
    tokens: NDArray[np.int64]
    bytes: int
    last_used: int
    cost_ns: int
    aligned: int = 0
    conversation: str = ""
    base: int | None = None
    shared: int = 0
    uses: int = 0
    users: int = 0
    ready: bool = False
    awaited: bool = True
    doomed: bool = False
    _view: RetainedView | None = attrs.field(default=None, init=False)

    def view(self, frees: int) -> RetainedView:
        """What a policy is shown of it, where ``frees`` bytes are free once it goes; made anew only when it changed."""
        view = self._view
        if view is None or (view.bytes, view.last_used, view.uses) != (frees, self.last_used, self.uses):
            tokens = len(self.tokens)
            view = self._view = RetainedView(self.handle, frees, tokens, self.last_used, self.uses, self.cost_ns)
        return view


@attrs.frozen
class Match:
    """What a prompt shares with the best entry. ``entry`` is ``None`` when nothing is shared."""

    entry: Entry | None
    matched: int
    reused: int
    kind: str


@attrs.frozen
class PrefixStatistics:
    """Bytes and counts of retained prefixes; ``shared`` bytes more would be ``used`` if heads weren't stored once."""

    budget: int
    used: int
    shared: int
    entries: int
    hits: int
    misses: int
    evictions: int


def common_head(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Length of the longest common head of two token arrays."""
    length = min(len(one), len(other))
    # In growing windows: most prompts that have something in common part early, and every save looks at all of them.
    start, stop = 0, min(_WINDOW, length)
    while start < length:
        different = one[start:stop] != other[start:stop]
        first = int(different.argmax())
        if different[first]:
            return start + first
        start, stop = stop, min(2 * stop, length)
    return length
