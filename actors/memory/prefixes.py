"""Retained prefixes: which token sequences have KV state in retained storage, and what a prompt can reuse of them.

Rule 1: identity is exact: model, template and options in one string, and the token ids. Rule 2: ``0 <= reused <=
matched <= prompt - 1``: at least one token is always computed. Rule 3: retention is bounded in bytes; a prefix larger
than the whole budget is not retained; who goes is the policy's choice. Rule 4: a prefix in use by a restore, or pinned
with its conversation, is not evicted. Kinds: ``exact_continuation`` extends everything retained, ``static_prefix``
shares a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from ...policies.errors import PolicyFault
from ...policies.retention.lru import lru
from ...policies.views import RetainedView, Retention, RetentionView
from ..errors import InvalidRequest
from ..guard import Guarded
from .windows import reusable

EXACT = "exact_continuation"
STATIC = "static_prefix"
NONE = "none"


@attrs.define(eq=False)
class Entry:
    """One retained prefix.

    ``aligned`` tokens of it were computed in whole chunks of the grid, in order from position 0. ``bytes`` is what its
    storage takes; ``users`` counts the save and the restores in flight; ``conversation`` is whose it is. It is matched
    only once ``ready``: what was not evaluated and synchronized is never claimed. Prompts may wait until it is, where
    it is ``awaited``. One that is ``doomed`` is not kept when its save ends.
    """

    handle: int
    identity: str
    tokens: NDArray[np.int64]
    bytes: int
    last_used: int
    cost_ns: int
    aligned: int = 0
    conversation: str = ""
    uses: int = 0
    users: int = 0
    ready: bool = False
    awaited: bool = True
    doomed: bool = False


@attrs.frozen
class Match:
    """What a prompt shares with the best entry. ``entry`` is ``None`` when nothing is shared."""

    entry: Entry | None
    matched: int
    reused: int
    kind: str


@attrs.frozen
class PrefixStatistics:
    """Bytes and counts of retained prefixes."""

    budget: int
    used: int
    entries: int
    hits: int
    misses: int
    evictions: int


def common_head(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Length of the longest common head of two token arrays."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


class PrefixIndex:
    """The retained prefixes of one model."""

    def __init__(self, budget: int, retention: Retention, grid: int = 1, windows: tuple[int | None, ...] = ()) -> None:
        if budget < 0 or grid < 1:
            raise InvalidRequest(f"retained bytes {budget} and reuse grid {grid}: need at least 0 and 1")
        self.budget = budget
        self._grid = grid
        self._windows = windows
        self.pinned: set[str] = set()
        self.policy = Guarded("retention", retention, lru)
        self._entries: dict[int, Entry] = {}
        self._next = 0
        self._counts = dict.fromkeys(("hits", "misses", "evictions"), 0)

    @property
    def used(self) -> int:
        return sum(entry.bytes for entry in self._entries.values())

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def get(self, handle: int) -> Entry | None:
        return self._entries.get(handle)

    def peek(self, identity: str, prompt: Sequence[int], whole: bool = False) -> Match:
        """The longest reusable head of ``prompt`` over all entries of this identity.

        The last token is never reused, since it has to be computed; with ``whole``, as for a preparation, it may be.
        """
        tokens = np.asarray(prompt, dtype=np.int64)
        most = len(tokens) if whole else len(tokens) - 1
        best: Entry | None = None
        matched = reused = 0
        for entry in self._entries.values():
            if entry.ready and entry.identity == identity:
                shared = min(common_head(entry.tokens, tokens), most)
                usable = self._usable(entry, shared)
                if (usable, shared) > (reused, matched):
                    best, matched, reused = entry, shared, usable
        if best is None or reused == 0:
            return Match(None, matched, 0, NONE)
        return Match(best, matched, reused, EXACT if matched == len(best.tokens) else STATIC)

    def match(self, identity: str, prompt: Sequence[int], at: int, whole: bool = False) -> Match:
        """As ``peek``; a found entry counts as used."""
        match = self.peek(identity, prompt, whole)
        self._counts["hits" if match.entry else "misses"] += 1
        if match.entry is not None:
            match.entry.last_used, match.entry.uses = at, match.entry.uses + 1
        return match

    def usable_of(self, shared: int, aligned: int, held: int) -> int:
        """Of ``shared`` tokens, those that may be reused of a state of ``held`` tokens.

        On a grid only whole chunks that were computed as such; behind a window only all that is held.
        """
        usable = shared if self._grid == 1 else min(shared, aligned) // self._grid * self._grid
        return reusable(self._windows, held, usable)

    def _usable(self, entry: Entry, shared: int) -> int:
        return self.usable_of(shared, entry.aligned, len(entry.tokens))

    def superseded(self, identity: str, tokens: Sequence[int], conversation: str = "") -> list[Entry]:
        """Entries, not in use, that ``tokens`` extends or equals: keeping both would keep the same head twice.

        What is pinned for another conversation stays. So does everything where layers have windows, since a longer
        state does not serve in place of a shorter one.
        """
        array = np.asarray(tokens, dtype=np.int64)
        return [
            entry
            for entry in self._entries.values()
            if entry.identity == identity
            and not entry.users
            and (entry.conversation == conversation or entry.conversation not in self.pinned)
            and self._serves(entry, len(array))
            and len(entry.tokens) <= len(array)
            and common_head(entry.tokens, array) == len(entry.tokens)
        ]

    def _serves(self, entry: Entry, longer: int) -> bool:
        return reusable(self._windows, longer, len(entry.tokens)) == len(entry.tokens)

    def covered(self, identity: str, tokens: Sequence[int]) -> bool:
        """Whether an entry of this identity holds all of ``tokens`` already, ready or being saved."""
        array = np.asarray(tokens, dtype=np.int64)
        entries = (entry for entry in self._entries.values() if entry.identity == identity)
        return any(
            common_head(entry.tokens, array) == len(array)
            and reusable(self._windows, len(entry.tokens), len(array)) == len(array)
            for entry in entries
        )

    def awaits(self, identity: str, prompt: Sequence[int], whole: bool = False) -> bool:
        """Whether a save on its way will let ``prompt`` reuse more than any finished one does."""
        everyone = (entry for entry in self._entries.values() if entry.identity == identity)
        entries = [entry for entry in everyone if entry.ready or entry.awaited]
        if all(entry.ready for entry in entries):
            return False
        tokens = np.asarray(prompt if whole else prompt[:-1], dtype=np.int64)
        heads = [(self._usable(entry, common_head(entry.tokens, tokens)), not entry.ready) for entry in entries]
        most = max(shared for shared, _ in heads)
        return most > 0 and (most, False) not in heads

    def room(self, size: int, at: int, going: Sequence[Entry] = ()) -> list[Entry] | None:
        """What must be evicted, besides what is ``going`` anyway, so that ``size`` more bytes fit: maybe nothing.

        ``None`` when they can't be made to fit.
        """
        idle = {
            entry.handle: entry
            for entry in self._entries.values()
            if not entry.users and entry not in going and entry.conversation not in self.pinned
        }
        needed = size - (self.budget - self.used + sum(entry.bytes for entry in going))
        if size > self.budget or needed > sum(entry.bytes for entry in idle.values()):
            return None
        chosen: list[Entry] = []
        while needed > 0:
            entry = self._evict(at, needed, idle)
            chosen.append(entry)
            needed -= entry.bytes
        return chosen

    def _evict(self, at: int, needed: int, idle: dict[int, Entry]) -> Entry:
        views = tuple(
            RetainedView(e.handle, e.bytes, len(e.tokens), e.last_used, e.uses, e.cost_ns) for e in idle.values()
        )
        view = RetentionView(at, needed, views)

        def check(handle: int) -> None:
            if handle not in idle:
                raise PolicyFault(f"retention chose {handle}; offered were {', '.join(map(str, idle))}")

        return idle.pop(self.policy.ask(view, check))

    def add(
        self,
        identity: str,
        tokens: Sequence[int],
        size: int,
        cost_ns: int,
        at: int,
        aligned: int = 0,
        conversation: str = "",
    ) -> Entry:
        """Begin to keep a prefix; the caller has made room and marks it ready.

        Raises ``InvalidRequest`` when it does not fit.
        """
        if size > self.budget - self.used:
            raise InvalidRequest(
                f"a prefix of {size} bytes does not fit: {self.budget - self.used} of {self.budget} are free"
            )
        self._next += 1
        entry = Entry(self._next, identity, np.asarray(tokens, dtype=np.int64), size, at, cost_ns, aligned, users=1)
        entry.conversation = conversation
        self._entries[entry.handle] = entry
        return entry

    def remove(self, handle: int, evicted: bool = False) -> Entry:
        """Forget a prefix."""
        self._counts["evictions"] += evicted
        return self._entries.pop(handle)

    def statistics(self) -> PrefixStatistics:
        """A frozen view."""
        return PrefixStatistics(budget=self.budget, used=self.used, entries=len(self._entries), **self._counts)
