"""A live device that is lost and comes back by itself: clients of what had shown nothing notice only the time."""

from __future__ import annotations

import pytest
import trio
from coresident.actors.effects import Report
from coresident.actors.errors import DeviceLost
from coresident.actors.events import ReadinessChanged

from support.live import LONG, desk, run

pytestmark = pytest.mark.usefixtures("front_door")

PROMPT = "The sea is wide and the wind is"
RESTARTS = {"restarts": 2}


class States:
    """An observer that keeps the states of readiness."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def delivered(self, delivery) -> None:
        reports = [effect.event for effect in delivery.effects if isinstance(effect, Report)]
        self.seen += [event.state for event in reports if isinstance(event, ReadinessChanged)]

    def token(self, request: str, index: int, at: int) -> None: ...

    def dropped(self, error: Exception) -> None:
        raise error


@pytest.mark.parametrize("skip", [0, 5])
def test_generations_that_have_shown_nothing_are_run_again_and_give_the_same_tokens(skip):
    async def main():
        states = States()
        async with desk([states], generation={"sequences": 2, "retained": 0}, limits=RESTARTS) as it:
            expected = await it.scheduler.generate(LONG, max_tokens=6)
            it.backend.fail("prefill", DeviceLost("unplugged"), skip=skip)
            results = []

            async def client():
                results.append((await it.scheduler.generate(LONG, max_tokens=6)).tokens)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(client)
                nursery.start_soon(client)
            assert results == [expected.tokens] * 2
            assert it.backend.pending == 0
            assert it.scheduler.readiness().ready
            await it.settled()
        assert states.seen == ["starting", "ready", "faulted", "recovering", "ready", "closing", "closed"]

    run(main)


@pytest.mark.parametrize(("operation", "skip"), [("score", 0), ("score", 1), ("copy", 0), ("prefill", 0)])
def test_a_decision_is_run_again_and_gives_the_same_scores(operation, skip):
    async def main():
        states = States()
        async with desk([states], limits=RESTARTS) as it:
            expected = await it.scheduler.decide("Food?", ["a", "b", "c"])
            it.backend.fail(operation, DeviceLost("unplugged"), skip=skip)
            await it.scheduler.decide("Drink?", ["x"])
            again = await it.scheduler.decide("Food?", ["a", "b", "c"])
            assert (again.outcome, again.scores) == ("completed", expected.scores)
            assert it.backend.pending == 0
            assert it.scheduler.readiness().ready
            await it.settled()
        assert states.seen == ["starting", "ready", "faulted", "recovering", "ready", "closing", "closed"]

    run(main)


def test_an_answer_that_was_begun_fails_typed_with_what_it_had_shown():
    async def main():
        async with desk(limits=RESTARTS) as it:
            it.backend.fail("decode", DeviceLost("unplugged"), skip=2)
            pieces = []

            async def stream():
                async with it.scheduler.generate(PROMPT, max_tokens=9) as generation:
                    async for piece in generation:
                        pieces.append(piece)  # noqa: PERF401

            with pytest.raises(DeviceLost, match="unplugged"):
                await stream()
            assert 1 <= len(pieces) < 9
            assert (await it.scheduler.generate(PROMPT, max_tokens=9)).outcome == "completed"
            await it.settled()

    run(main)


def test_restarts_that_do_not_help_end_in_a_fault_that_a_person_repairs():
    async def main():
        async with desk(limits=RESTARTS) as it:
            it.backend.fail("prefill", DeviceLost("unplugged"))
            for skip in range(2):
                it.backend.fail("load", DeviceLost(f"unplugged {skip}"), skip=skip)
            with pytest.raises(DeviceLost, match="unplugged"):
                await it.scheduler.generate(PROMPT, max_tokens=2)
            assert it.scheduler.readiness().actions == ("retry", "repair")
            assert (await it.scheduler.repair()).ready
            assert (await it.scheduler.generate(PROMPT, max_tokens=2)).outcome == "completed"
            await it.settled()

    run(main)
