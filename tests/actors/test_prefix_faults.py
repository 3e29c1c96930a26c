"""Retained prefixes and steps that fail: what could not be kept, or not be brought back, is never claimed."""

from __future__ import annotations

import pytest
from coresident.actors.effects import DropRetained, Notify, Report, Send
from coresident.actors.errors import BackendFault
from coresident.actors.events import GenerationEnded, PrefixDropped, PrefixRetained, PrefixReused
from coresident.actors.generation import GenerationActor
from coresident.actors.messages import (
    Available,
    Discharge,
    Failed,
    Finished,
    Settled,
    StepDone,
    SubmitGeneration,
    SubmitStep,
    Unavailable,
)
from coresident.actors.work import Measured, PrefillWork, RestoreWork, RowResult, SaveWork, StepResult

from support.bench_setup import Bench

MEASURED = Measured(0, 10, 1, 10, 10)
PROMPT = tuple(range(20, 30))


class Desk:
    """One generation actor whose steps are ended by hand."""

    def __init__(self) -> None:
        self.actor = GenerationActor(Bench(slots=1, chunk=16, block=4).generation_setup())
        self.at = 0
        self.effects: list[object] = []
        self.steps = []
        self.tell(Available())

    def tell(self, message) -> None:
        self.at += 1
        self.effects = self.actor.handle(message, self.at)
        for effect in self.effects:
            if isinstance(effect, Send) and isinstance(effect.message, SubmitStep):
                self.steps.append(effect.message.step)
            elif isinstance(effect, Send) and isinstance(effect.message, Settled):
                self.steps += effect.message.next

    def generate(self, request: str, prompt: tuple[int, ...]) -> None:
        self.tell(SubmitGeneration(request, prompt, 1, "m"))

    def end(self, kind: type, outcome=None) -> None:
        """End the step on its way, which is of this kind; the first token is 7."""
        step = self.steps.pop(0)
        assert isinstance(step.work, kind)
        if outcome is None:
            last = kind is PrefillWork and step.work.last
            rows = (RowResult(step.request, (7,)),) if last else ()
            outcome = Finished(StepResult(rows), MEASURED)
        self.tell(StepDone(step.step, outcome, settle=True))

    def events(self, kind: type) -> list:
        return [e.event for e in self.effects if isinstance(e, Notify | Report) and isinstance(e.event, kind)]


def test_a_save_on_its_way_at_a_fault_is_not_kept():
    """The device itself goes on, so the save finishes; the reload that follows forgets what it stored."""
    desk = Desk()
    desk.generate("g1", PROMPT)
    desk.end(PrefillWork)
    desk.tell(Unavailable(BackendFault("housekeeping failed")))
    desk.end(SaveWork)
    assert desk.events(PrefixRetained) == []
    assert [drop.why for drop in desk.events(PrefixDropped)] == ["invalidated"]
    assert any(isinstance(e, Send) and isinstance(e.message, Discharge) for e in desk.effects)
    assert not any(isinstance(e, DropRetained) for e in desk.effects)
    desk.tell(Available())
    desk.generate("g2", (*PROMPT, 8))
    (reuse,) = desk.events(PrefixReused)
    assert reuse.reused == 0
    assert desk.actor.statistics().prefixes.used == 0


@pytest.mark.parametrize("outcome", [None, Failed(BackendFault("lost"), True)], ids=["finished", "failed"])
def test_a_save_behind_another_at_a_fault_returns_every_byte_once(outcome):
    """What it was stored behind is given up at once; how the save ends makes no difference to that."""
    desk = Desk()
    returned = {}

    def note():
        for effect in desk.effects:
            if isinstance(effect, Send) and isinstance(effect.message, Discharge):
                owner, amount = effect.message.owner, effect.message.amount
                returned[owner] = returned.get(owner, 0) + amount

    for request, prompt in (("g1", PROMPT), ("g2", (*PROMPT[:9], 50, 51))):
        desk.generate(request, prompt)
        desk.end(PrefillWork)
        if request == "g1":
            desk.end(SaveWork)
    (saving,) = desk.steps
    assert (saving.work.base, saving.work.shared, saving.keeps[2]) == (1, 8, 30)
    desk.tell(Unavailable(BackendFault("housekeeping failed")))
    note()
    assert returned == {"prefix/1": 100}
    desk.end(SaveWork, outcome)
    note()
    # The device controller returns what a step that did not finish was to keep.
    assert returned == {"prefix/1": 100} | ({} if outcome else {"prefix/2": 30})
    assert desk.actor.statistics().prefixes.used == 0


@pytest.mark.parametrize("sticky", [False, True])
def test_a_prefix_that_cannot_be_restored_fails_one_request_and_is_given_up(sticky):
    desk = Desk()
    for request, prompt in (("g1", PROMPT), ("g2", tuple(range(40, 60)))):
        desk.generate(request, prompt)
        while desk.steps:
            desk.end(type(desk.steps[0].work))
    desk.generate("g3", (*PROMPT, 8))
    desk.end(RestoreWork, Failed(BackendFault("no such storage"), sticky))
    (ended,) = desk.events(GenerationEnded)
    assert (ended.request, ended.outcome) == ("g3", "failed")
    assert [drop.why for drop in desk.events(PrefixDropped)] == ["invalidated"]
    desk.generate("g4", (*PROMPT, 8))
    (reuse,) = desk.events(PrefixReused)
    assert reuse.reused == 0
    desk.end(PrefillWork)
    assert [(e.request, e.outcome) for e in desk.events(GenerationEnded)] == [("g4", "completed")]
