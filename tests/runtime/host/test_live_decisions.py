"""The live host: decisions beside generation, and what is reused, on the reference backend that can be held."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing
from coresident.actors.effects import AskYield
from coresident.actors.events import Granted
from coresident.actors.messages import Expire, SubmitDecision
from coresident.policies.views import WorkClass
from coresident.runtime.models.sampling import SamplingParams

from support.live import LONG, Heard, desk, numbers_of, run

pytestmark = pytest.mark.usefixtures("front_door")

PROMPT = "The sea is wide and the wind is"
INSTRUCTION = "Answer yes or no: is the text about food, or about the weather of the day? "
ROWS = ("pizza with cheese", "a car engine", "bread")
HEADS = ("probability", "rank", "choice")
LOGPROBS = SamplingParams(logprobs=3)


class Grants:
    """An observer that keeps the order of grants."""

    def __init__(self) -> None:
        self.events: list[Granted] = []

    def delivered(self, delivery) -> None:
        self.events += [event for event in delivery.events() if isinstance(event, Granted)]

    def token(self, request: str, index: int, at: int) -> None: ...

    def dropped(self, error: Exception) -> None:
        raise error


@pytest.mark.parametrize(
    ("operation", "segment", "skip"),
    [("prefill", 2, 0), ("prefill", 5, 3), ("decode", 1, 2)],
    ids=["first chunk", "middle chunk", "decode run"],
)
def test_R10_a_whole_decision_goes_first_and_nobody_can_tell(operation, segment, skip):
    """The device stands inside a segment when the decision comes: it ends, the decision runs, the rest goes on."""

    async def main():
        async with desk() as alone:
            expected = await numbers_of(alone.scheduler.generate(LONG, max_tokens=12, sampling=LOGPROBS))
        async with desk() as alone:
            scores = (await alone.scheduler.decide(INSTRUCTION, ROWS, heads=HEADS)).scores
        asked, grants = Heard(AskYield), Grants()
        async with desk([asked, grants]) as it:
            held = it.backend.hold(operation, segment, skip)
            decided = []
            got = []

            async def decide():
                decided.append(await it.scheduler.decide(INSTRUCTION, ROWS, heads=HEADS))

            async def generate():
                got.extend(await numbers_of(it.scheduler.generate(LONG, max_tokens=12, sampling=LOGPROBS)))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(generate)
                await held.reached()
                before = it.backend.segments.copy()
                passed = len(grants.events)
                nursery.start_soon(decide)
                await asked.event.wait()
                held.release()
            assert got == expected
            assert decided[0].scores == scores
            assert decided[0].outcome == "completed"
            after = grants.events[passed:]
            urgent = [event.work_class is WorkClass.DECISION for event in after]
            assert urgent == sorted(urgent, reverse=True), "generation ran between two steps of the decision"
            first = after[urgent.index(False)]
            assert first.resumed == (operation == "prefill")
            assert it.scheduler.statistics().device.suspensions == (operation == "prefill")
            prompt_chunks = [chunk for chunk in it.backend.prefilled if chunk[0] == "generation"]
            assert sum(tokens for _, _, tokens in prompt_chunks) == len(LONG), "a chunk was computed twice"
            assert before[operation] >= segment
            await it.settled()

    run(main)


def test_R10_decisions_do_not_depend_on_what_shares_the_device():
    async def main():
        async with desk() as it:
            expected = (await it.scheduler.decide(INSTRUCTION, ROWS, heads=HEADS)).scores
            async with it.scheduler.generate(LONG, max_tokens=60) as stream:
                await anext(stream)
                answers = [await it.scheduler.decide(INSTRUCTION, ROWS, heads=HEADS) for _ in range(3)]
                one_by_one = [await it.scheduler.decide(INSTRUCTION, [row], heads=("rank",)) for row in ROWS]
            assert [answer.scores for answer in answers] == [expected] * 3
            assert tuple(answer.scores["rank"][0] for answer in one_by_one) == expected["rank"]
            await it.settled()

    run(main)


def test_R78_a_changed_instruction_invalidates_its_prefix():
    async def main():
        async with desk() as it:

            async def decide(instruction):
                return await it.scheduler.decide(instruction, ROWS, heads=HEADS)

            first, again = await decide(INSTRUCTION), await decide(INSTRUCTION)
            assert (first.instruction_reused, again.scores) == (0, first.scores)
            assert again.instruction_reused > len(INSTRUCTION)
            other = await decide(INSTRUCTION.replace("food", "cars"))
            assert other.instruction_reused == 0
            assert other.scores != first.scores
            back = await decide(INSTRUCTION)
            assert (back.instruction_reused, back.scores) == (0, first.scores)
            assert it.scheduler.statistics().decision.instructions == 3
            await it.settled()

    run(main)


@pytest.mark.doors("trio")
def test_R7_each_model_is_loaded_once_for_thousands_of_alternations():
    async def main():
        grants = Grants()
        async with desk([grants], decision={"model": "synthetic", "context": 128}) as it:
            for _ in range(1000):
                await it.scheduler.generate([97], max_tokens=1, retain=False)
                await it.scheduler.decide("", ["a"], heads=("rank",))
            assert it.backend.loads == {"generation": 1, "decision": 1}
            owners = [event.owner for event in grants.events if event.owner != "supervisor"]
            assert sum(one != other for one, other in pairwise(owners)) == 1999
            assert it.backend.most_inside == 1
            await it.settled()

    run(main, 60)


def test_R8_steps_of_both_models_are_never_inside_at_once():
    async def main():
        async with desk(decision={"model": "synthetic"}) as it:

            async def generate(n):
                await it.scheduler.generate(LONG[n:], max_tokens=10)

            async def decide(n):
                await it.scheduler.decide(INSTRUCTION[n:], ROWS)

            async with trio.open_nursery() as nursery:
                for n in range(4):
                    nursery.start_soon(generate, n)
                    nursery.start_soon(decide, n)
            assert it.backend.most_inside == 1
            await it.settled()

    run(main)


@pytest.mark.doors("trio", "asyncio")
@pytest.mark.parametrize("moment", ["queued", "instruction", "rows"])
def test_R5_an_abandoned_decision_costs_at_most_the_running_segment(moment):
    async def main():
        asked = Heard(AskYield)
        async with desk([asked]) as it:
            expected = await it.scheduler.decide(INSTRUCTION, ROWS)
            await it.scheduler.decide("Another instruction. ", ["a"])
            held = it.backend.hold("score" if moment == "rows" else "prefill", 2)
            scopes = [trio.CancelScope(), trio.CancelScope()]

            async def decide(scope):
                with scope:
                    await it.scheduler.decide(INSTRUCTION, ROWS)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(decide, scopes[0])
                await held.reached()
                nursery.start_soon(decide, scopes[1])
                while it.scheduler.statistics().decision.open < 2:
                    await trio.lowlevel.checkpoint()
                scopes[moment == "queued"].cancel()
                before = it.backend.segments.copy()
                if moment == "queued":
                    while not it.scheduler.statistics().decision.cancelled:
                        await trio.lowlevel.checkpoint()
                else:
                    await asked.event.wait()
                held.release()
            assert [scope.cancelled_caught for scope in scopes] == [moment != "queued", moment == "queued"]
            assert it.scheduler.statistics().decision.cancelled == 1
            assert sum(it.backend.segments.values()) > sum(before.values())
            assert (await it.scheduler.decide(INSTRUCTION, ROWS)).scores == expected.scores
            await it.settled()

    run(main)


@pytest.mark.doors("trio")
def test_a_deadline_that_comes_inside_a_decision_makes_it_abstain():
    async def main():
        expired = Heard(Expire)
        async with desk([expired]) as it:
            held = it.backend.hold("score")
            answers = []

            async def decide():
                answers.append(await it.scheduler.decide(INSTRUCTION, ROWS, deadline=10))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(decide)
                await held.reached()
                clock.jump(15)
                await expired.event.wait()
                held.release()
            assert (answers[0].outcome, answers[0].reason, answers[0].scores) == ("abstained", "deadline", {})
            await it.settled()

    clock = trio.testing.MockClock()
    run(main, clock=clock)


def test_a_generation_whose_caller_awaits_a_decision_does_not_lock_up():
    """Every slot is taken by callers that wait for a decision before they read on."""

    async def main():
        async with desk(generation={"sequences": 2}) as it:

            async def client(n):
                async with it.scheduler.generate(LONG[n:], max_tokens=20) as stream:
                    async for piece in stream:
                        if piece.token is not None:
                            assert not (await it.scheduler.decide("Go on?", [str(n)])).abstained

            async with trio.open_nursery() as nursery:
                for n in range(4):
                    nursery.start_soon(client, n)
            await it.settled()

    run(main)


def test_decisions_keep_their_order_of_arrival():
    async def main():
        grants, heard = Grants(), Heard(SubmitDecision)
        async with desk([grants, heard]) as it:
            held = it.backend.hold("decode")
            async with it.scheduler.generate(PROMPT, max_tokens=10) as stream, trio.open_nursery() as nursery:
                await held.reached()
                for _ in range(3):
                    nursery.start_soon(it.scheduler.decide, INSTRUCTION, ROWS)
                await heard.event.wait()
                held.release()
                await stream.result()
            requests = [event.request for event in grants.events if event.work_class is WorkClass.DECISION]
            assert requests == sorted(requests)
            assert len(set(requests)) == 3
            await it.settled()

    run(main)
