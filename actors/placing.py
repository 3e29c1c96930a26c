"""Who has the KV slots: requests before preparations, and what happens to a preparation that is in the way.

A request that continues what is being prepared takes it over where it stands: slot, finished chunks, and the chunk in
flight where it wants the same one. A request that wants only the slot gets it once the preparation has saved what it
has.
"""

from __future__ import annotations

import numpy as np

from .effects import CancelTimer, Effect, Notify, Report, Send, SetTimer
from .events import PrefixReused, PreparationSeated
from .memory.entries import EXACT, NONE, STATIC, common_head
from .messages import PromoteStep, Wake, WithdrawStep
from .preparing import Preparer
from .running import SequenceRunner
from .seating import held_up, next_to_seat
from .sequences import Ending, GenerationSetup, Sequence
from .work import PrefillWork


class PlacingRunner(SequenceRunner):
    """Places sequences; see the module's docstring."""

    def __init__(self, setup: GenerationSetup, name: str, device: str) -> None:
        super().__init__(setup, name, device)
        self._prepare = Preparer(setup, self._make.pace)
        self._may_prepare = False
        self._wakes: int | None = None

    def _place(self, at: int) -> None:
        """Give free KV slots to queued requests; a preparation in the way is taken over, or makes way."""
        self._ask_when(at)
        if self._settled():
            return
        if self._preparing():
            for sequence in self._queued():
                for holder in self._preparing():
                    self._offer(holder, sequence, at)
        preparing = self._preparing()
        candidates = list(self._open.values())
        if len(self._prepare) or preparing:
            candidates = [s for s in candidates if s.slot is not None or self._may_sit(s, preparing, at)]
        while (taker := next_to_seat(candidates, self._kv)) is not None:
            reuse = self._kv.seat(taker, at)
            if taker.prepares:
                self._prepare.seated(taker)
                self._out.append(Report(PreparationSeated(taker.request, reuse.reused, reuse.handle)))
            else:
                self._out.append(Notify(reuse))
        self._make_way(at)

    def _settled(self) -> bool:
        """Whether nobody can be placed now: no slot is free, or nobody waits, and no preparation is in the way."""
        seated = self._seated()
        idle = not self._kv.free_slots or len(seated) == len(self._open)
        return idle and not any(sequence.prepares for sequence in seated)

    def _queued(self) -> list[Sequence]:
        """Requests without a slot, most urgent first; preparations aside."""
        queued = [s for s in self._open.values() if s.life.state == "queued" and not s.prepares]
        return sorted(queued, key=lambda s: (s.work_class, s.arrived))

    def _preparing(self) -> list[Sequence]:
        """Preparations that have a slot, those aside that only have to be saved."""
        return [s for s in self._seated() if s.prepares and s.life.state != "saving"]

    def _may_sit(self, sequence: Sequence, preparing: list[Sequence], at: int) -> bool:
        """Whether a queued sequence may take a free slot: not while chunks that it can reuse are about to be saved."""
        if sequence.prepares:
            return self._may_run(sequence, at)
        return not any(h.ending is not None and self._lends(h, sequence) for h in preparing)

    def _ask_when(self, at: int) -> None:
        """Ask the policy whether preparation may go on; end what needs nothing more, or what it declines."""
        self._may_prepare = False
        attempt = self._prepare.active()
        if attempt is None:
            self._wake_at(None)
            return
        if attempt.life.state == "queued" and self._there(attempt):
            self._prepare.seated(attempt)
            self._end(attempt, Ending("prepared", ""), at)
            self._ask_when(at)
            return
        others = sum(not s.prepares and s.life.state != "saving" for s in self._open.values())
        when = self._prepare.begins(at, others)
        if when is None and not others:
            self._stop(attempt.request, Ending("declined", ""), at)
            if attempt.request not in self._prepare:
                self._ask_when(at)
            return
        self._wake_at(when if when is not None and when > at else None)
        self._may_prepare = when == at

    def _wake_at(self, when: int | None) -> None:
        """Be woken then; with ``None`` not at all."""
        if when == self._wakes:
            return
        self._wakes, key = when, f"{self.name}/preparation"
        self._out.append(CancelTimer(key) if when is None else SetTimer(key, when, self.name, Wake()))

    def _there(self, attempt: Sequence) -> bool:
        """Whether all that a queued attempt would prefill is retained already."""
        spec = attempt.spec
        attempt.reused = self._kv.prefixes.peek(spec.identity, spec.prompt, whole=True).reused
        return attempt.reused == len(spec.prompt)

    def _may_run(self, sequence: Sequence, at: int) -> bool:
        if not sequence.prepares or sequence.life.state == "saving":
            return True
        return self._may_prepare and sequence is self._prepare.active()

    def _make_way(self, at: int) -> None:
        """Somebody waits for a slot that a preparation holds, or for what one saves."""
        if not any(sequence.prepares for sequence in self._seated()):
            return
        waiting = self._queued()
        for sequence in list(self._open.values()):
            if waiting and sequence.prepares and sequence.life.state == "saving":
                self._hurry(sequence, waiting[0])
        for holder in self._preparing():
            first = held_up(self._open.values(), self._kv, holder)
            if first is not None:
                self._yield(holder, first, at)

    def _yield(self, holder: Sequence, to: Sequence, at: int) -> None:
        """A preparation saves its finished chunks and leaves, as urgently as the request that waits for it.

        One that had to leave before its first chunk was finished computes that chunk the next time, so that it gets on
        however often it has to leave.
        """
        if holder.ending is not None or (self._may_prepare and self._prepare.owed_a_chunk(holder)):
            self._hurry(holder, to)
            return
        holder.work_class = min(holder.work_class, to.work_class)
        self._stop(holder.request, Ending("yielded", ""), at)

    def _hurry(self, holder: Sequence, to: Sequence) -> None:
        """What a preparation still has to do before it is out of the way gets the urgency of who waits for it."""
        if to.work_class < holder.work_class:
            holder.work_class = to.work_class
            if holder.step is not None:
                step = PromoteStep(holder.step, holder.request, to.work_class, holder.arrived)
                self._out.append(Send(self._device, step))

    # --- taking over --------------------------------------------------------------------------------------------

    def _offer(self, holder: Sequence, taker: Sequence, at: int) -> None:
        """A request gets what a preparation has for it.

        It goes on in its place when it continues it, or comes in place of what its conversation was prepared for. What
        it only shares a head with loses nothing: it saves its chunks, from which the request takes that head.
        """
        spec, goal = taker.spec, len(holder.spec.prompt)
        shared = self._shared(holder, taker)
        continues = shared >= holder.position and shared == min(goal, len(spec.prompt) - 1)
        same = bool(spec.conversation) and spec.conversation == holder.spec.conversation
        if spec.retain and (continues or same) and self._take_over(holder, taker, "promoted", at):
            return
        if taker.life.state == "queued" and self._lends(holder, taker):
            self._yield(holder, taker, at)

    def _shared(self, holder: Sequence, taker: Sequence) -> int:
        """Tokens that a preparation and the request behind it have in common, and that need not be computed."""
        if holder.spec.identity != taker.spec.identity:
            return 0
        ours, theirs = np.asarray(holder.spec.prompt), np.asarray(taker.spec.prompt)
        return min(common_head(ours, theirs), len(theirs) - (not taker.prepares))

    def _usable(self, holder: Sequence, shared: int) -> int:
        return self._kv.prefixes.usable_of(min(holder.position, shared), holder.aligned, holder.position)

    def _retained(self, taker: Sequence) -> int:
        return self._kv.prefixes.peek(taker.spec.identity, taker.spec.prompt, taker.prepares).reused

    def _lends(self, holder: Sequence, taker: Sequence) -> bool:
        """Whether the finished chunks, once saved, spare the taker a whole chunk or more."""
        shared = self._shared(holder, taker)
        if holder.life.state != "prefilling" or not shared:
            return False
        return self._usable(holder, shared) - self._retained(taker) >= self._setup.chunk

    def _in_flight(self, holder: Sequence) -> int:
        """Where the chunk on its way will end; where the preparation stands when there is none."""
        step = self._steps[holder.step][0] if holder.step and holder.step != holder.stray else None
        ahead = len(step.work.tokens) if step is not None and isinstance(step.work, PrefillWork) else 0
        return holder.position + ahead

    def _take_over(self, holder: Sequence, taker: Sequence, outcome: str, at: int) -> bool:
        """Hand a preparation's slot on, and its chunk in flight where the taker wants the same one.

        False, and nothing happens, when the taker is seated, or has as much retained already.
        """
        shared, step = self._shared(holder, taker), holder.step
        stops = holder.ending is not None and holder.ending.outcome != "yielded"
        if holder.life.state != "prefilling" or holder.slot is None or taker.life.state != "queued" or stops:
            return False
        held = self._usable(holder, shared)
        keep = held == holder.position and self._in_flight(holder) <= shared and holder.stray is None
        if (self._in_flight(holder) if keep else held) <= self._retained(taker):
            return False
        wasted = holder.position - held
        self._kv.hand_over(holder, taker, held)
        if step is not None:
            self._steps[step] = (self._steps[step][0], [taker])
            taker.step, holder.step = step, None
            if not keep:
                taker.stray = step
            self._out.append(self._promote(step, taker) if keep else Send(self._device, WithdrawStep(step)))
        self._tell_taken(holder, taker, shared)
        self._end(holder, Ending(outcome, "", wasted=wasted), at)
        return True

    def _tell_taken(self, holder: Sequence, taker: Sequence, shared: int) -> None:
        if taker.prepares:
            self._prepare.seated(taker)
            self._out.append(Report(PreparationSeated(taker.request, taker.reused, taken_from=holder.request)))
            return
        kind = EXACT if shared == len(holder.spec.prompt) else STATIC
        reuse = PrefixReused(
            taker.request,
            len(taker.spec.prompt),
            shared,
            taker.reused,
            kind if taker.reused else NONE,
            taken_from=holder.request,
        )
        self._out.append(Notify(reuse))

    def _promote(self, step: str, to: Sequence) -> Effect:
        return Send(self._device, PromoteStep(step, to.request, to.work_class, to.arrived))
