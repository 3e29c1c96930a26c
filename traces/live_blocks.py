"""Which blocks of a recording can still matter: those of open requests, and of what is retained.

A recorder's table of blocks forgets the others when it is full, so that a recording can go on for ever and an audit
still finds every head that the scheduler found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..actors.effects import Effect, Notify, Report
from ..actors.events import CheckpointEnded, PrefixDropped
from ..actors.messages import Finished, StepDone
from ..actors.work import FetchWork, SaveWork
from ..runtime.host.assembly import DECISION
from ..runtime.host.observers import Delivery
from .audit.charges import steps_asked
from .events_messages import Given
from .events_schedule import EndDecision, EndGeneration, EndPreparation, Refuse
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from .format import Event


class LiveBlocks:
    """Follows a run, delivery by delivery. What is open and retained bounds what it holds."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, ...]] = {}
        self._retained: dict[int, tuple[int, ...]] = {}
        self._saving: dict[str, int] = {}
        self._instruction: tuple[int, ...] = ()

    def blocks(self) -> set[int]:
        """The numbers of all that matters now."""
        return {*self._instruction, *(block for blocks in self._all() for block in blocks)}

    def _all(self) -> Iterator[tuple[int, ...]]:
        yield from self._open.values()
        yield from self._retained.values()

    def add(self, delivery: Delivery, events: Sequence[Event], given: Given | None) -> None:
        """Take a delivery, its lines, and what was written of its message."""
        if given is not None and given.file is not None and given.request is not None:
            self._open[given.request] = given.file.content.blocks
        for event in events:
            self._arrive(event)
        match delivery.message:
            case StepDone(step, outcome) if step in self._saving:
                handle = self._saving.pop(step)
                if not isinstance(outcome, Finished):
                    self._retained.pop(handle, None)
        self._steps(delivery.effects)
        for event in events:
            if isinstance(event, EndGeneration | EndDecision | EndPreparation | Refuse):
                self._open.pop(event.request, None)
        for effect in delivery.effects:
            match effect:
                case Report(PrefixDropped(handle=handle)):
                    self._retained.pop(handle, None)
                case Notify(CheckpointEnded(request=request)):
                    self._open.pop(request, None)

    def _arrive(self, event: Event) -> None:
        match event:
            case ArriveGeneration(request=request):
                self._open[request] = event.prompt.blocks
            case ArrivePreparation(request=request):
                self._open[request] = event.known.blocks
            case ArriveDecision(request=request):
                self._open[request] = event.instruction.blocks
            case EndGeneration(request=request, whole=whole) if whole is not None:
                self._open[request] = whole.blocks

    def _steps(self, effects: Sequence[Effect]) -> None:
        """What is about to be retained, and the instruction that the decision model's slots are about to hold."""
        for step in steps_asked(effects):
            if isinstance(step.work, SaveWork | FetchWork):
                self._retained[step.work.handle] = self._open.get(step.request, ())
                self._saving[step.step] = step.work.handle
            elif step.owner == DECISION:
                self._instruction = self._open.get(step.request, ())
