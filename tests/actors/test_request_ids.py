"""One id names one thing that is open: a request, a preparation, a file to store or to fetch."""

from __future__ import annotations

import pytest
from coresident.actors.effects import Notify
from coresident.actors.errors import InvalidRequest
from coresident.actors.events import Accepted, CheckpointEnded, Refused
from coresident.actors.generation import GenerationActor
from coresident.actors.messages import (
    Available,
    Cancel,
    FetchPrefix,
    Finished,
    StepDone,
    StorePrefix,
    SubmitGeneration,
    SubmitPreparation,
)
from coresident.actors.work import Measured, PrefixFile, StepResult

from support.bench_setup import Bench

PROMPT = tuple(range(20, 40))
FILE = PrefixFile("elsewhere", "launch", "m", PROMPT, 16, 8)
ASKED = {
    "generation": SubmitGeneration("same", PROMPT, 2, "m"),
    "preparation": SubmitPreparation("same", (*PROMPT, *PROMPT), 0, "m"),
    "store": StorePrefix("same", PROMPT, "m", "path", "launch"),
    "fetch": FetchPrefix("same", FILE),
}


@pytest.fixture
def actor():
    """An actor that retains a part of the prompt, so that all of ``ASKED`` have work to do."""
    actor = GenerationActor(Bench().generation_setup())
    actor.handle(Available(), 1)
    actor.handle(FetchPrefix("first", PrefixFile("here", "launch", "m", PROMPT[:16], 16, 8)), 2)
    finished = Finished(StepResult(), Measured(0, 1, 1, 1, 1))
    actor.handle(StepDone("generation/file1", finished, settle=True), 3)
    return actor


def notices(effects):
    return [effect.event for effect in effects if isinstance(effect, Notify)]


@pytest.mark.parametrize("second", ASKED)
@pytest.mark.parametrize("first", ASKED)
def test_an_id_that_is_open_is_refused_and_who_has_it_goes_on(actor, first, second):
    events = notices(actor.handle(ASKED[first], 4))
    assert [event.request for event in events if isinstance(event, Accepted)] == ["same"]
    (refused,) = notices(actor.handle(ASKED[second], 5))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, InvalidRequest)
    assert refused.error.message == "request same is already open: use a new id"
    assert actor.statistics().open == 1


def test_an_id_is_free_again_after_its_end(actor):
    actor.handle(ASKED["store"], 4)
    actor.handle(Cancel("same"), 5)
    finished = Finished(StepResult(), Measured(0, 1, 1, 1, 1))
    (ended,) = notices(actor.handle(StepDone("generation/file2", finished, settle=True), 6))
    assert isinstance(ended, CheckpointEnded)
    assert isinstance(notices(actor.handle(ASKED["generation"], 7))[0], Accepted)
