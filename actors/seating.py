"""Who gets a KV slot next.

Rule 1: by class, then by arrival. Rule 2: work below foreground leaves one slot free, so that foreground needn't wait
for it. Rule 3: a request that ``PASSES`` later ones have overtaken goes first, and rule 2 then only keeps it from the
last slot that foreground could have; so its wait is bounded. Preparation is exempt. Rule 4: a prompt that continues
what is being saved waits for that save, which is a step on its way, rather than compute it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..policies.views import WorkClass
from .retaining import Retainer
from .sequences import Sequence

PASSES = 8


def next_to_seat(sequences: Iterable[Sequence], kv: Retainer) -> Sequence | None:
    """The queued request that takes a free slot now, if any; counts those that it overtakes."""
    if not kv.free_slots:
        return None
    everyone = list(sequences)
    queued = [s for s in everyone if s.life.state == "queued"]
    lower = sum([_lower(s) for s in everyone if s.slot is not None])
    for sequence in _most_urgent_first(queued):
        if _fits(sequence, kv.free_slots, kv.slots, lower) and not _awaits(sequence, kv):
            for earlier in queued[: queued.index(sequence)]:
                earlier.passed += 1
            return sequence
    return None


def _most_urgent_first(queued: list[Sequence]) -> Iterator[Sequence]:
    """In order of urgency; they are sorted only when the first of them is not the one."""
    if queued:
        yield min(queued, key=_urgency)
        yield from sorted(queued, key=_urgency)[1:]


def held_up(sequences: Iterable[Sequence], kv: Retainer, holder: Sequence) -> Sequence | None:
    """The most urgent request, preparations aside, that would sit if ``holder`` left its slot; nobody is seated."""
    everyone = list(sequences)
    lower = sum(s.slot is not None and s is not holder and _lower(s) for s in everyone)
    queued = sorted((s for s in everyone if s.life.state == "queued" and not s.prepares), key=_urgency)
    return next((s for s in queued if _fits(s, kv.free_slots + 1, kv.slots, lower) and not _awaits(s, kv)), None)


def _awaits(sequence: Sequence, kv: Retainer) -> bool:
    return kv.prefixes.awaits(sequence.spec.identity, sequence.spec.prompt, sequence.prepares)


def _lower(sequence: Sequence) -> bool:
    return sequence.work_class > WorkClass.FOREGROUND


def _overdue(sequence: Sequence) -> bool:
    return sequence.passed >= PASSES and sequence.work_class is not WorkClass.PREPARATION


def _urgency(sequence: Sequence) -> tuple[bool, WorkClass, int]:
    return not _overdue(sequence), sequence.work_class, sequence.arrived


def _fits(sequence: Sequence, free: int, slots: int, lower: int) -> bool:
    if not _lower(sequence) or slots == 1:
        return free > 0
    if _overdue(sequence):
        return free > 0 and lower < slots - 1
    return free > 1
