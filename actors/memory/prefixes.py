"""Retained prefixes: which token sequences have KV state in retained storage, and what a prompt can reuse of them.

Rule 1: identity is exact: model, template and options in one string, and the token ids. Rule 2: ``0 <= reused <=
matched <= prompt - 1``: at least one token is always computed. Rule 3: retention is bounded in bytes; a prefix larger
than the whole budget is not retained; who goes is the policy's choice. Rule 4: a prefix in use by a restore, or pinned
with its conversation, is not evicted. Rule 5: heads are stored once, as far as they are whole blocks of state that is
the same to the bit. Kinds: ``exact_continuation`` extends everything retained, ``static_prefix`` shares a head.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from ...policies.errors import PolicyFault
from ...policies.retention.lru import lru
from ...policies.views import Retention, RetentionView
from ..errors import InvalidRequest
from ..guard import Guarded
from .entries import EXACT, NONE, STATIC, Entry, Match, PrefixStatistics, Tokens, common_head
from .sharing import SharedStorage
from .windows import reusable, whole


class PrefixIndex:
    """The retained prefixes of one model.

    A token takes ``token_bytes``. Storage shares heads in blocks of ``block`` tokens, or not at all where that is 0.
    """

    def __init__(
        self,
        budget: int,
        retention: Retention,
        grid: int = 1,
        windows: tuple[int | None, ...] = (),
        token_bytes: int = 1,
        block: int = 0,
    ) -> None:
        if budget < 0 or grid < 1:
            raise InvalidRequest(f"retained bytes {budget} and reuse grid {grid}: need at least 0 and 1")
        self.budget = budget
        self._grid = grid
        self._windows = windows
        self._block = block
        self._storage = SharedStorage(token_bytes)
        self.pinned: set[str] = set()
        self.policy = Guarded("retention", retention, lru)
        self._entries: dict[int, Entry] = {}
        self._by_head: dict[tuple[str, int], dict[int, Entry]] = {}
        self._next = 0
        self._counts = dict.fromkeys(("hits", "misses", "evictions"), 0)

    @property
    def used(self) -> int:
        return self._storage.used

    @property
    def evictable(self) -> int:
        """Bytes that are free once everything that may be evicted is gone."""
        return self.budget - self._storage.used_without(self._idle())

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def get(self, handle: int) -> Entry | None:
        return self._entries.get(handle)

    def peek(self, identity: str, prompt: Tokens, whole: bool = False) -> Match:
        """The longest reusable head of ``prompt`` over all entries of this identity.

        The last token is never reused, since it has to be computed; with ``whole``, as for a preparation, it may be.
        """
        tokens = np.asarray(prompt, dtype=np.int64)
        most = len(tokens) if whole else len(tokens) - 1
        best: Entry | None = None
        matched = reused = 0
        for entry in self._alike(identity, tokens):
            if entry.ready:
                shared = min(common_head(entry.tokens, tokens), most)
                usable = self._usable(entry, shared)
                if (usable, shared) > (reused, matched):
                    best, matched, reused = entry, shared, usable
        if best is None or reused == 0:
            return Match(None, matched, 0, NONE)
        return Match(best, matched, reused, EXACT if matched == len(best.tokens) else STATIC)

    def _alike(self, identity: str, tokens: NDArray[np.int64]) -> Collection[Entry]:
        """Entries of this identity that have their first token in common with ``tokens``: no others share a head."""
        return self._by_head.get(self._head(identity, tokens), {}).values()

    @staticmethod
    def _head(identity: str, tokens: NDArray[np.int64]) -> tuple[str, int]:
        return identity, int(tokens[0]) if len(tokens) else -1

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

    def superseded(self, identity: str, tokens: Tokens, conversation: str = "") -> list[Entry]:
        """Entries, not in use, that ``tokens`` extends or equals: keeping both would keep the same head twice.

        What is pinned for another conversation stays. So does everything where layers have windows, since a longer
        state does not serve in place of a shorter one.
        """
        array = np.asarray(tokens, dtype=np.int64)
        return [
            entry
            for entry in self._alike(identity, array)
            if not entry.users
            and (entry.conversation == conversation or entry.conversation not in self.pinned)
            and self._serves(entry, len(array))
            and len(entry.tokens) <= len(array)
            and common_head(entry.tokens, array) == len(entry.tokens)
        ]

    def _serves(self, entry: Entry, longer: int) -> bool:
        return reusable(self._windows, longer, len(entry.tokens)) == len(entry.tokens)

    def covered(self, identity: str, tokens: Tokens) -> bool:
        """Whether an entry of this identity holds all of ``tokens`` already, ready or being saved."""
        array = np.asarray(tokens, dtype=np.int64)
        return any(
            common_head(entry.tokens, array) == len(array)
            and reusable(self._windows, len(entry.tokens), len(array)) == len(array)
            for entry in self._alike(identity, array)
        )

    def awaits(self, identity: str, prompt: Sequence[int], whole: bool = False) -> bool:
        """Whether a save on its way will let ``prompt`` reuse more than any finished one does."""
        if all(entry.ready for entry in self._entries.values()):
            return False
        tokens = np.asarray(prompt if whole else prompt[:-1], dtype=np.int64)
        entries = [entry for entry in self._alike(identity, tokens) if entry.ready or entry.awaited]
        if all(entry.ready for entry in entries):
            return False
        heads = [(self._usable(entry, common_head(entry.tokens, tokens)), not entry.ready) for entry in entries]
        most = max(shared for shared, _ in heads)
        return most > 0 and (most, False) not in heads

    def base(
        self, identity: str, tokens: Tokens, aligned: int, copied: tuple[int | None, int], going: Sequence[Entry] = ()
    ) -> tuple[Entry | None, int]:
        """Behind which entry to store ``tokens``, and behind how many of its own; nothing that is ``going``.

        Only state that is the same to the bit is shared: what both computed in whole chunks, and what one of them
        ``copied`` out of the other (handle and tokens). Where layers have windows, both must still hold all of it.
        """
        array = np.asarray(tokens, dtype=np.int64)
        best: Entry | None = None
        most = 0
        for entry in self._alike(identity, array) if self._block else ():
            if not entry.ready or entry in going:
                continue
            same = max(min(aligned, entry.aligned), copied[1] if copied[0] == entry.handle else 0)
            if same <= most or not whole(self._windows, max(len(entry.tokens), len(array))):
                continue
            shared = min(same, common_head(entry.tokens, array)) // self._block * self._block
            if shared > most:
                best, most = entry, shared
        return best, most

    def room(self, size: int, at: int, going: Sequence[Entry] = (), base: Entry | None = None) -> list[Entry] | None:
        """What must be evicted, besides what is ``going`` anyway, so that ``size`` more bytes fit: maybe nothing.

        They are stored behind ``base``, which stays. ``None`` when they can't be made to fit.
        """
        gone = {entry.handle for entry in going}
        needed = self._storage.used_without(gone) + size - self.budget
        if needed <= 0:
            return []
        idle = self._idle() - gone - {base.handle if base else None}
        alone = self._storage.frees(gone)
        # Mostly what they free each alone is enough; what they free together takes longer to count.
        if sum([alone.get(handle, 0) for handle in idle]) < needed and not self._fits(size, gone | idle):
            return None
        chosen: list[Entry] = []
        while (needed := self._storage.used_without(gone) + size - self.budget) > 0:
            entry = self._entries[self._evict(at, needed, idle - gone, gone)]
            chosen.append(entry)
            gone.add(entry.handle)
        return chosen

    def _fits(self, size: int, gone: Collection[int]) -> bool:
        return self._storage.used_without(gone) + size <= self.budget

    def _idle(self) -> set[int]:
        everyone = self._entries.items()
        return {handle for handle, e in everyone if not e.users and e.conversation not in self.pinned}

    def _evict(self, at: int, needed: int, idle: Collection[int], gone: Collection[int]) -> int:
        """Let the policy choose among what would free anything: not what others hold all of."""
        frees = self._storage.frees(gone)
        offered = {handle: frees[handle] for handle in sorted(idle) if handle in frees}
        views = tuple([self._entries[handle].view(size) for handle, size in offered.items()])

        def check(handle: int) -> None:
            if handle not in offered:
                raise PolicyFault(f"retention chose {handle}; offered were {', '.join(map(str, offered))}")

        return self.policy.ask(RetentionView(at, needed, views), check)

    def add(
        self,
        identity: str,
        tokens: Tokens,
        cost_ns: int,
        at: int,
        aligned: int = 0,
        conversation: str = "",
        base: Entry | None = None,
        shared: int = 0,
    ) -> Entry:
        """Begin to keep a prefix, behind ``shared`` tokens of ``base``; the caller has made room and marks it ready.

        Raises ``InvalidRequest`` when it does not fit.
        """
        self._next += 1
        behind = base.handle if base else None
        size = self._storage.add(self._next, len(tokens), behind, shared)
        if self.used > self.budget:
            self._storage.remove(self._next)
            raise InvalidRequest(
                f"a prefix of {size} bytes does not fit: {self.budget - self.used} of {self.budget} are free"
            )
        entry = Entry(self._next, identity, np.asarray(tokens, dtype=np.int64), size, at, cost_ns, aligned, users=1)
        entry.conversation, entry.base, entry.shared = conversation, behind, shared
        self._entries[entry.handle] = entry
        self._by_head.setdefault(self._head(identity, entry.tokens), {})[entry.handle] = entry
        if base is not None:
            base.users += 1
        return entry

    def save_ended(self, entry: Entry) -> None:
        """The save of an entry has ended, one way or the other: what it was stored behind may go."""
        base = self._entries.get(entry.base) if entry.base is not None else None
        if base is not None:
            base.users -= 1

    def doom(self, entry: Entry) -> None:
        """Give an entry up when its save ends, if that has not; it holds nothing of its base any more."""
        entry.doomed = True
        if not entry.ready:
            self._storage.detach(entry.handle)

    def remove(self, handle: int, evicted: bool = False) -> dict[int, int]:
        """Forget a prefix; the bytes that it alone held, by the handle of the entry whose save had stored them."""
        self._counts["evictions"] += evicted
        entry = self._entries.pop(handle)
        head = self._head(entry.identity, entry.tokens)
        del self._by_head[head][handle]
        if not self._by_head[head]:
            del self._by_head[head]
        return self._storage.remove(handle)

    def statistics(self) -> PrefixStatistics:
        """A frozen view."""
        used, shared = self._storage.used, self._storage.shared
        return PrefixStatistics(
            budget=self.budget, used=used, shared=shared, entries=len(self._entries), **self._counts
        )
