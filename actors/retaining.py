"""KV slots and retained prefixes of one generation model: who sits where, what is saved, what is given up.

A sequence takes a free slot; the best retained prefix is restored into it first, unless that slot still holds it from
its last use. When a sequence ends, what its slot holds is saved into retained storage, and entries that it extends
are given up.
"""

from __future__ import annotations

import numpy as np

from .effects import DropRetained, Effect, Report, Send
from .errors import BudgetExceeded
from .events import PrefixDropped, PrefixRetained, PrefixReused
from .memory.entries import Entry
from .memory.prefixes import PrefixIndex
from .messages import Discharge
from .sequences import GenerationSetup, Sequence
from .work import PrefixFile


class Retainer:
    """The slots and prefixes of one model; methods return effects for the actor to emit.

    ``changes`` counts how often a slot was given or taken.
    """

    def __init__(self, setup: GenerationSetup, device: str) -> None:
        self._setup = setup
        self._device = device
        self._free: dict[int, int | None] = dict.fromkeys(range(setup.slots))
        self.changes = 0
        self.prefixes = PrefixIndex(
            setup.retained_bytes,
            setup.retention,
            setup.reuse_grid,
            setup.windows,
            setup.kv_bytes_per_token,
            setup.retained_block,
        )

    @property
    def slots(self) -> int:
        return self._setup.slots

    @property
    def free_slots(self) -> int:
        return len(self._free)

    def seat(self, sequence: Sequence, at: int) -> PrefixReused:
        """Give the sequence a slot and find what it can reuse; it is then restoring or prefilling."""
        spec = sequence.spec
        match = self.prefixes.match(spec.identity, spec.prompt, at, whole=sequence.prepares)
        handle = match.entry.handle if match.entry else None
        there = [slot for slot, resident in self._free.items() if handle is not None and resident == handle]
        empty = [slot for slot, resident in self._free.items() if resident is None]
        sequence.slot = (there or empty or list(self._free))[0]
        del self._free[sequence.slot]
        self.changes += 1
        sequence.reused = match.reused
        if match.entry is not None:
            sequence.cost_ns = match.entry.cost_ns * match.reused // len(match.entry.tokens)
            sequence.aligned = min(match.entry.aligned, match.reused)
            sequence.copied = (handle, match.reused)
        if match.entry is None or there:
            sequence.position = match.reused
            sequence.life.to("prefill")
        else:
            sequence.restore = match.entry.handle
            match.entry.users += 1
            sequence.life.to("restore")
        return PrefixReused(spec.request, len(spec.prompt), match.matched, match.reused, match.kind, handle)

    def hand_over(self, giver: Sequence, taker: Sequence, tokens: int) -> None:
        """The taker sits where the giver sat and goes on behind the first ``tokens`` of what is there."""
        taker.slot, giver.slot = giver.slot, None
        self.changes += 1
        taker.position = taker.reused = tokens
        taker.aligned = min(giver.aligned, tokens)
        taker.copied = (giver.copied[0], min(giver.copied[1], tokens))
        taker.cost_ns = giver.cost_ns
        taker.life.to("prefill")

    def restored(self, sequence: Sequence) -> None:
        """A restore has ended, one way or the other."""
        entry = self._entry(sequence.restore)
        sequence.restore = None
        if entry is not None:
            entry.users -= 1

    def release(self, sequence: Sequence, resident: int | None = None) -> None:
        """Take the slot back; ``resident`` is the handle of the prefix it holds."""
        if sequence.slot is not None:
            self._free[sequence.slot] = resident
            sequence.slot = None
            self.changes += 1

    def begin_save(self, sequence: Sequence, at: int) -> list[Effect]:
        """Make room for what the slot holds and set ``sequence.save``; ``None`` when there is nothing to retain."""
        spec, tokens = sequence.spec, np.asarray(sequence.held(), dtype=np.int64)
        size = self._bytes(len(tokens))
        if not spec.retain or not size or size > self.prefixes.budget:
            return []
        if self.prefixes.covered(spec.identity, tokens):
            return []
        superseded = self.prefixes.superseded(spec.identity, tokens, spec.conversation)
        base, shared = self.prefixes.base(spec.identity, tokens, sequence.aligned, sequence.copied, superseded)
        evicted = self.prefixes.room(size - self._bytes(shared), at, superseded, base)
        if evicted is None and base is not None:
            base, shared = None, 0
            evicted = self.prefixes.room(size, at, superseded)
        if evicted is None:
            return []
        effects = [effect for entry in superseded for effect in self._drop(entry, "superseded")]
        effects += [effect for entry in evicted for effect in self._drop(entry, "evicted")]
        cost_ns, aligned = sequence.cost_ns, sequence.aligned
        entry = self.prefixes.add(
            spec.identity, tokens, cost_ns, at, aligned, spec.conversation, base=base, shared=shared
        )
        sequence.save = entry.handle
        return effects

    def restore_failed(self, sequence: Sequence) -> list[Effect]:
        """What could not be restored is given up: it would be found again, and fail again."""
        entry = self._entry(sequence.restore)
        self.restored(sequence)
        return [] if entry is None or entry.users else self._drop(entry, "invalidated")

    def saved(self, sequence: Sequence) -> list[Effect]:
        """The save has finished: from now on the prefix can be matched, unless it was given up meanwhile."""
        entry = self._entry(sequence.save)
        if entry is None:
            raise RuntimeError(f"{sequence.request} saved a prefix that nobody keeps")
        self.prefixes.save_ended(entry)
        if entry.doomed:
            return self._drop(entry, "invalidated", lost=True)
        entry.ready, entry.users = True, entry.users - 1
        self.release(sequence, entry.handle)
        return [self._kept(entry, sequence.request)]

    def save_failed(self, sequence: Sequence) -> None:
        """The save did not finish: nothing is kept (the device controller has returned its charge)."""
        entry, sequence.save = self._entry(sequence.save), None
        if entry is not None:
            self.prefixes.save_ended(entry)
            self.prefixes.remove(entry.handle)

    def begin_fetch(self, file: PrefixFile, aligned: int, cost_ns: int, at: int) -> tuple[Entry, list[Effect]]:
        """Make room for what a file holds, which is stored whole.

        Raises ``BudgetExceeded`` when eviction can't make enough.
        """
        size = self._bytes(len(file.tokens))
        evicted = self.prefixes.room(size, at)
        if evicted is None:
            raise BudgetExceeded(
                f"retaining the {len(file.tokens)} tokens of {file.path}",
                size,
                self.prefixes.evictable,
                "enlarge generation.retained, wait for what is in use, or release what is pinned",
            )
        effects = [effect for entry in evicted for effect in self._drop(entry, "evicted")]
        entry = self.prefixes.add(file.identity, file.tokens, cost_ns, at, aligned)
        entry.awaited = False
        return entry, effects

    def fetched(self, entry: Entry, request: str) -> list[Effect]:
        """A file's prefix is whole and verified; what it serves in place of goes."""
        entry.ready, entry.users = True, entry.users - 1
        usable = self._usable(entry)
        superseded = [
            other
            for other in self.prefixes.superseded(entry.identity, entry.tokens.tolist())
            if other is not entry and self._usable(other) <= usable
        ]
        return [
            self._kept(entry, request),
            *(effect for other in superseded for effect in self._drop(other, "superseded")),
        ]

    def lost(self, entry: Entry) -> list[Effect]:
        """A prefix went with its device before anyone could use it."""
        return self._drop(entry, "invalidated", lost=True)

    def _usable(self, entry: Entry) -> int:
        return self.prefixes.usable_of(len(entry.tokens), entry.aligned, len(entry.tokens))

    def pin(self, conversation: str, pinned: bool) -> None:
        """Keep a conversation's prefixes from eviction, or no longer."""
        (self.prefixes.pinned.add if pinned else self.prefixes.pinned.discard)(conversation)

    def release_conversation(self, conversation: str) -> list[Effect]:
        """Unpin a conversation and give its prefixes up; one in use becomes evictable instead."""
        self.prefixes.pinned.discard(conversation)
        effects: list[Effect] = []
        for entry in self.prefixes.entries():
            if entry.conversation == conversation and entry.ready and not entry.users:
                self._free = {slot: None if held == entry.handle else held for slot, held in self._free.items()}
                effects += self._drop(entry, "released")
        return effects

    def forget_all(self, why: str, lost: bool) -> list[Effect]:
        """Give every prefix up; storage that is ``lost`` with its device is forgotten by the next load."""
        for entry in self.prefixes.entries():
            self.prefixes.doom(entry)
        ready = [entry for entry in self.prefixes.entries() if entry.ready]
        self._free = dict.fromkeys(self._free)
        return [effect for entry in ready for effect in self._drop(entry, why, lost)]

    def _drop(self, entry: Entry, why: str, lost: bool = False) -> list[Effect]:
        """Give a prefix up. What others hold of it stays, and stays charged under its name."""
        freed = self.prefixes.remove(entry.handle, evicted=why == "evicted")
        model, account = self._setup.model, self._setup.retained_account
        free: list[Effect] = [] if lost else [DropRetained(model, entry.handle)]
        return [
            *free,
            *(Send(self._device, Discharge(account, f"prefix/{origin}", size)) for origin, size in freed.items()),
            Report(PrefixDropped(model, entry.handle, len(entry.tokens), sum(freed.values()), why)),
        ]

    def _kept(self, entry: Entry, request: str) -> Report:
        kept = len(entry.tokens)
        return Report(
            PrefixRetained(self._setup.model, entry.handle, kept, entry.bytes, request, entry.shared, entry.base)
        )

    def _bytes(self, tokens: int) -> int:
        return tokens * self._setup.kv_bytes_per_token

    def _entry(self, handle: int | None) -> Entry | None:
        return None if handle is None else self.prefixes.get(handle)
