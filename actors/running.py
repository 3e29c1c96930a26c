"""Sequences on their way through the device: which steps they need next, and what the end of each step means.

The part of the generation actor that knows nothing of clients: a sequence that has a KV slot is restored, prefilled
chunk by chunk, decoded in runs that several share, and saved. Who gets a slot, and what its client is told, is for
``generation.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs

from ..policies.views import WorkClass
from .effects import Effect, Send
from .errors import CoresidentError, DeviceLost
from .messages import Failed, Finished, Settled, StepDone, StepRefused, WithdrawStep
from .retaining import Retainer
from .sequences import Ending, GenerationSetup, Sequence, StepMaker, new_sequence
from .work import DecodeWork, PrefillWork, RestoreWork, RowResult, SaveWork, StepRequest

_LOST = "lost"


class SequenceRunner(ABC):
    """Brings open sequences forward. Subclasses place them, and tell their clients of their ends."""

    def __init__(self, setup: GenerationSetup, name: str, device: str) -> None:
        self.name = name
        self._setup = setup
        self._device = device
        self._make = StepMaker(setup, name)
        self._kv = Retainer(setup, device)
        self._open: dict[str, Sequence] = {}
        self._steps: dict[str, tuple[StepRequest, list[Sequence]]] = {}
        self._sitting: list[Sequence] = []
        self._sitting_since = 0
        self._available = False
        self._restarting = False
        self._out: list[Effect] = []

    @abstractmethod
    def _place(self, at: int) -> None:
        """Give free KV slots to queued sequences."""

    @abstractmethod
    def _tell(self, sequence: Sequence, ending: Ending, at: int) -> None:
        """Tell the client that its request has ended, once."""

    @abstractmethod
    def _left(self, sequence: Sequence, at: int) -> None:
        """A sequence is gone from the slots."""

    @abstractmethod
    def _chunk_done(self, sequence: Sequence, at: int) -> None:
        """A prefill chunk of a sequence has finished."""

    @abstractmethod
    def _may_run(self, sequence: Sequence, at: int) -> bool:
        """Whether a sequence that has a slot may ask for the device now."""

    # --- what comes next ----------------------------------------------------------------------------------------

    def _next_steps(self, at: int) -> list[StepRequest]:
        """Steps for everything that is ready and has none on its way."""
        if not self._available:
            return []
        self._place(at)
        steps = [
            self._note(step, [s], at)
            for s in self._seated()
            if s.step is None and self._may_run(s, at) and (step := self._single(s)) is not None
        ]
        return steps + self._decode_runs(at)

    def _seated(self) -> list[Sequence]:
        """Sequences that have a KV slot, in order of arrival: looked for only when a slot has changed hands."""
        if self._sitting_since != self._kv.changes:
            self._sitting = [s for s in self._open.values() if s.slot is not None]
            self._sitting_since = self._kv.changes
        return self._sitting

    def _single(self, sequence: Sequence) -> StepRequest | None:
        match sequence.life.state:
            case "restoring" if sequence.restore is not None:
                return self._make.restore(sequence, sequence.restore)
            case "prefilling":
                return self._make.prefill(sequence)
            case "saving" if sequence.save is not None:
                entry = self._kv.prefixes.get(sequence.save)
                return self._make.save(sequence, entry) if entry is not None else None
            case _:
                return None

    def _decode_runs(self, at: int) -> list[StepRequest]:
        steps: list[StepRequest] = []
        decoding: dict[WorkClass, list[Sequence]] = {}
        for sequence in self._seated():
            if sequence.life.state == "decoding":
                decoding.setdefault(sequence.spec.work_class, []).append(sequence)
        for _, ready in sorted(decoding.items()):
            if not any(sequence.step for sequence in ready):
                steps.append(self._note(self._make.decode(ready, len(self._open) - len(ready), at), ready, at))
        return steps

    def _note(self, step: StepRequest, sequences: list[Sequence], at: int) -> StepRequest:
        self._steps[step.step] = (step, sequences)
        for sequence in sequences:
            sequence.since = at if step.since is None else step.since
        return step

    # --- ends of steps ------------------------------------------------------------------------------------------

    def _step_done(self, done: StepDone, at: int) -> None:
        step, sequences = self._steps.pop(done.step)
        self._make.decisions = max(self._make.decisions, done.decisions)
        for sequence in sequences:
            sequence.step = None
        match done.outcome:
            case Finished(result, measured):
                self._make.learn(step, result, measured)
                rows = {row.request: row for row in result.rows}
                for sequence in sequences:
                    sequence.since = None
                    sequence.cost_ns += measured.step_ns // len(sequences)
                    if sequence.stray != done.step:
                        self._advance(step, sequence, rows.get(sequence.request), at)
            case Failed() | StepRefused():
                for sequence in sequences:
                    self._step_failed(step, sequence, done.outcome, at)
            case _:
                for sequence in sequences:
                    self._undo(step, sequence, at)
        for sequence in sequences:
            sequence.stray = None
            if sequence.ending is not None:
                self._end(sequence, sequence.ending, at)
        if done.settle:
            self._out.append(Send(self._device, Settled(done.step, tuple(self._next_steps(at)))))

    def _step_failed(self, step: StepRequest, sequence: Sequence, outcome: Failed | StepRefused, at: int) -> None:
        error, ran = outcome.error, isinstance(outcome, Failed)
        if isinstance(step.work, RestoreWork):
            self._out += self._kv.restore_failed(sequence)
        self._undo(step, sequence, at)
        shown = isinstance(outcome, Failed) and sequence.request in outcome.shown
        stopped = sequence.ending is not None and sequence.ending.outcome != _LOST
        if not (isinstance(error, DeviceLost) and not shown and not stopped and self._run_again(sequence, ran)):
            self._end(sequence, Ending("failed", type(error).__name__, error), at)

    def _advance(self, step: StepRequest, sequence: Sequence, row: RowResult | None, at: int) -> None:
        match step.work:
            case RestoreWork(tokens=restored):
                self._kv.restored(sequence)
                sequence.position = restored
                sequence.life.to("prefill")
            case PrefillWork(tokens=chunk, last=last):
                sequence.chunk_done(len(chunk), self._setup.chunk)
                if last:
                    sequence.life.to("decode")
                self._chunk_done(sequence, at)
            case DecodeWork():
                sequence.position += len(row.tokens) if row else 0
            case SaveWork():
                self._out += self._kv.saved(sequence)
                self._leave(sequence, at)
        if row is None:
            return
        sequence.generated += row.tokens
        if row.error is not None:
            self._end(sequence, Ending("failed", type(row.error).__name__, row.error), at)
        elif row.stop is not None:
            self._end(sequence, Ending("completed", row.stop), at)
        elif len(sequence.generated) >= sequence.spec.max_tokens:
            self._end(sequence, Ending("completed", "length"), at)

    def _undo(self, step: StepRequest, sequence: Sequence, at: int) -> None:
        """A step that did not finish did nothing that counts."""
        if isinstance(step.work, RestoreWork):
            self._kv.restored(sequence)
        elif isinstance(step.work, SaveWork):
            self._kv.save_failed(sequence)
            self._leave(sequence, at)

    # --- ends of requests ---------------------------------------------------------------------------------------

    def _stop(self, request: str, ending: Ending, at: int) -> None:
        """End a request early: at once when nothing of it is on the device, else when its step has ended."""
        sequence = self._open.get(request)
        if sequence is None or sequence.ending is not None or sequence.life.state == "saving":
            return
        if sequence.step is None:
            self._end(sequence, ending, at)
            return
        sequence.ending = ending
        self._out.append(Send(self._device, WithdrawStep(sequence.step)))

    def _end(self, sequence: Sequence, ending: Ending, at: int) -> None:
        """Tell the client; then save what the slot holds, or free it."""
        if sequence.life.state in ("saving", "ended"):
            return
        if ending.outcome == _LOST:
            if self._run_again(sequence, ran=sequence.life.state != "queued"):
                return
            ending = attrs.evolve(ending, outcome="failed")
        sequence.ending = None
        self._tell(sequence, ending, at)
        if ending.outcome != "failed" and sequence.slot is not None and self._available:
            self._out += self._kv.begin_save(sequence, at)
        if sequence.save is not None:
            sequence.life.to("save")
        else:
            self._leave(sequence, at)

    def _run_again(self, sequence: Sequence, ran: bool) -> bool:
        """Put a request that has shown nothing back to its beginning, for when there is a device again.

        One that ``ran`` when the device was lost may be what lost it, so that counts.
        """
        again = self._setup.reruns > 0 and sequence.losses + ran <= self._setup.reruns
        if not again or sequence.prepares or sequence.generated or sequence.life.state in ("saving", "ended"):
            return False
        self._available, self._restarting = False, True
        sequence.life.to("end")
        self._kv.release(sequence)
        self._open[sequence.request] = new_sequence(sequence.spec, sequence.arrived, sequence.losses + ran)
        return True

    def _leave(self, sequence: Sequence, at: int) -> None:
        sequence.life.to("end")
        self._kv.release(sequence)
        del self._open[sequence.request]
        self._left(sequence, at)

    def _fail_all(self, error: CoresidentError, at: int, restart: bool = False) -> None:
        """Fail what has nothing on the device, or put it back for a ``restart``; the rest when its step has ended."""
        ending = Ending(_LOST if restart else "failed", type(error).__name__, error)
        for sequence in list(self._open.values()):
            if sequence.life.state == "saving" and sequence.step is None:
                self._kv.save_failed(sequence)
                self._leave(sequence, at)
            elif sequence.step is None:
                self._end(sequence, ending, at)
            elif sequence.life.state != "saving":
                sequence.ending = ending
                self._out.append(Send(self._device, WithdrawStep(sequence.step)))
