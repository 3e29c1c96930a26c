"""KV slots and retained prefixes of one generation model: who sits where, what is saved, what is given up.

A sequence takes a free slot; the best retained prefix is restored into it first, unless that slot still holds it from
its last use. When a sequence ends, what its slot holds is saved into retained storage, and entries that it extends
are given up.
"""

from __future__ import annotations

from .effects import DropRetained, Effect, Report, Send
from .errors import BudgetExceeded
from .events import PrefixDropped, PrefixRetained, PrefixReused
from .memory.prefixes import Entry, PrefixIndex
from .messages import Discharge
from .sequences import GenerationSetup, Sequence
from .work import PrefixFile


class Retainer:
    """The slots and prefixes of one model; methods return effects for the actor to emit."""

    def __init__(self, setup: GenerationSetup, device: str) -> None:
        self._setup = setup
        self._device = device
        self._free: dict[int, int | None] = dict.fromkeys(range(setup.slots))
        self.prefixes = PrefixIndex(setup.retained_bytes, setup.retention, setup.reuse_grid, setup.windows)

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
        sequence.reused = match.reused
        if match.entry is not None:
            sequence.cost_ns = match.entry.cost_ns * match.reused // len(match.entry.tokens)
            sequence.aligned = min(match.entry.aligned, match.reused)
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
        taker.position = taker.reused = tokens
        taker.aligned = min(giver.aligned, tokens)
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

    def begin_save(self, sequence: Sequence, at: int) -> list[Effect]:
        """Make room for what the slot holds and set ``sequence.save``; ``None`` when there is nothing to retain."""
        tokens = sequence.held()
        spec = sequence.spec
        size = len(tokens) * self._setup.kv_bytes_per_token
        if not spec.retain or not tokens or size > self.prefixes.budget:
            return []
        if self.prefixes.covered(spec.identity, tokens):
            return []
        superseded = self.prefixes.superseded(spec.identity, tokens, spec.conversation)
        evicted = self.prefixes.room(size, at, superseded)
        if evicted is None:
            return []
        effects = [effect for entry in superseded for effect in self._drop(entry, "superseded")]
        effects += [effect for entry in evicted for effect in self._drop(entry, "evicted")]
        entry = self.prefixes.add(
            spec.identity, tokens, size, sequence.cost_ns, at, sequence.aligned, spec.conversation
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
        if entry.doomed:
            return self._drop(entry, "invalidated", lost=True)
        entry.ready, entry.users = True, entry.users - 1
        self.release(sequence, entry.handle)
        kept = PrefixRetained(self._setup.model, entry.handle, len(entry.tokens), entry.bytes, sequence.request)
        return [Report(kept)]

    def save_failed(self, sequence: Sequence) -> None:
        """The save did not finish: nothing is kept (the device controller has returned its charge)."""
        if sequence.save is not None:
            self.prefixes.remove(sequence.save)
            sequence.save = None

    def begin_fetch(self, file: PrefixFile, aligned: int, cost_ns: int, at: int) -> tuple[Entry, list[Effect]]:
        """Make room for what a file holds. Raises ``BudgetExceeded`` when eviction can't make enough."""
        size = len(file.tokens) * self._setup.kv_bytes_per_token
        evicted = self.prefixes.room(size, at)
        if evicted is None:
            pinned = self.prefixes.pinned
            kept = sum(e.bytes for e in self.prefixes.entries() if e.users or e.conversation in pinned)
            raise BudgetExceeded(
                f"retaining the {len(file.tokens)} tokens of {file.path}",
                size,
                self.prefixes.budget - kept,
                "enlarge generation.retained, wait for what is in use, or release what is pinned",
            )
        effects = [effect for entry in evicted for effect in self._drop(entry, "evicted")]
        entry = self.prefixes.add(file.identity, file.tokens, size, cost_ns, at, aligned)
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
        kept = PrefixRetained(self._setup.model, entry.handle, len(entry.tokens), entry.bytes, request)
        return [Report(kept), *(effect for other in superseded for effect in self._drop(other, "superseded"))]

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
            entry.doomed = True
        ready = [entry for entry in self.prefixes.entries() if entry.ready]
        self._free = dict.fromkeys(self._free)
        return [effect for entry in ready for effect in self._drop(entry, why, lost)]

    def _drop(self, entry: Entry, why: str, lost: bool = False) -> list[Effect]:
        self.prefixes.remove(entry.handle, evicted=why == "evicted")
        model = self._setup.model
        free: list[Effect] = [] if lost else [DropRetained(model, entry.handle)]
        return [
            *free,
            Send(self._device, Discharge(self._setup.retained_account, f"prefix/{entry.handle}")),
            Report(PrefixDropped(model, entry.handle, len(entry.tokens), entry.bytes, why)),
        ]

    def _entry(self, handle: int | None) -> Entry | None:
        return None if handle is None else self.prefixes.get(handle)
