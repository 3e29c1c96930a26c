"""One story told twice: live on the reference backend, and on the virtual host with a modelled device.

A chat of two turns, decisions before and inside the second, a utility request, a prompt that is cancelled and sent
again, one that is too long. Numbers differ; what happened to whom, what was reused, and the order in which it ended do
not.
"""

from __future__ import annotations

from contextlib import suppress

import trio
import trio.testing
from coresident.actors.errors import CoresidentError
from coresident.actors.events import DecisionEnded, GenerationEnded, PrefixReused, Refused
from coresident.actors.messages import SubmitDecision
from coresident.policies.views import WorkClass
from coresident.runtime.backends.modelled import CountingSampler

from support.live import Bench, config, run
from support.virtual import MS, Log, Sim

TURN = list(range(100))
OTHER = list(range(200, 56, -1))
FOOD, CARS = "Is the text about food?", "Is the text about cars?"
ROWS = ("pizza", "an engine", "bread")


class Ends(Log):
    """What is compared: ends in order with their counts, and the order in which decisions had the device."""

    def __init__(self) -> None:
        super().__init__()
        self.story: list[tuple] = []

    def _note(self, event, at: int) -> None:
        super()._note(event, at)
        match event:
            case PrefixReused(_, prompt, matched, reused, kind):
                self.story.append(("reuse", prompt, matched, reused, kind))
            case GenerationEnded():
                self.story.append(
                    (event.outcome, event.reason, event.prompt, event.reused, event.prefilled, event.tokens)
                )
            case DecisionEnded():
                self.story.append((event.outcome, event.reason, event.rows, event.tokens, event.instruction_reused))
            case Refused(_, error):
                self.story.append((str(error),))

    def decisions(self) -> list[int]:
        """Decisions by the order of their first submission, as their steps had the device."""
        order: dict[str, int] = {}
        grants = [grant.request for grant in self.grants if grant.work_class is WorkClass.DECISION]
        return [order.setdefault(request, len(order)) for request in grants]


async def told_live(log: Ends) -> None:
    async with Bench(config(), [log]).open() as it:

        async def decide(instruction):
            await it.scheduler.decide(instruction, ROWS, heads=("rank",))

        first = await it.scheduler.generate(TURN, max_tokens=5)
        await decide(FOOD)
        second = [*TURN, *first.tokens, *b"And then?"]
        held = it.backend.hold("prefill", 2)
        async with trio.open_nursery() as nursery, it.scheduler.generate(second, max_tokens=9) as stream:
            await held.reached()
            for instruction in (FOOD, CARS):
                nursery.start_soon(decide, instruction)
                await trio.testing.wait_all_tasks_blocked()
            held.release()
            await stream.result()
        await it.scheduler.generate(list(b"Name this chat"), max_tokens=3, work_class="utility", retain=False)
        held = it.backend.hold("prefill", 2, skip=3)
        async with it.scheduler.generate(OTHER, max_tokens=4) as stream:
            await held.reached()
            stream.cancel()
            await trio.testing.wait_all_tasks_blocked()
            held.release()
            await stream.result()
        await it.scheduler.generate(OTHER, max_tokens=4)
        with suppress(CoresidentError):
            await it.scheduler.generate(list(range(256)) * 2, max_tokens=4)
        await decide(FOOD)
        await it.settled()


def told_virtually(log: Ends) -> None:
    it = Sim(config(), log=log)
    kit = Bench(config()).kits["generation"]

    def decide(at, name, instruction):
        rendered = kit.render_decision(instruction, ROWS)
        message = SubmitDecision(name, rendered.instruction, rendered.rows, ("rank",), rendered.identity)
        it.host.call_at(at, lambda: it.host.send("decision", message))

    def now(ms: float = 0) -> float:
        return it.host.now / MS + ms

    it.generate(now(), "turn1", TURN, 5)
    it.run()
    decide(it.host.now, "d1", FOOD)
    it.run()
    answer = [token for _, token in zip(range(5), _answer(), strict=False)]
    it.generate(now(), "turn2", [*TURN, *answer, *b"And then?"], 9)
    decide(it.host.now + MS // 2, "d2", FOOD)
    decide(it.host.now + MS // 2, "d3", CARS)
    it.run()
    it.generate(now(), "name", list(b"Name this chat"), 3, work_class=WorkClass.UTILITY, retain=False)
    it.run()
    it.cancel(now(3 * 16 + 5), "other")
    it.generate(now(), "other", OTHER, 4)
    it.run()
    it.generate(now(), "again", OTHER, 4)
    it.run()
    it.generate(now(), "long", list(range(256)) * 2, 4)
    it.run()
    decide(it.host.now, "d4", FOOD)
    it.run()
    it.close()


def _answer():
    """What the modelled device's sampler says in ``Sim``."""
    sampler = CountingSampler(7)
    while True:
        yield sampler.sample(None).token


def test_what_happens_live_happens_virtually():
    live, virtual = Ends(), Ends()
    run(lambda: told_live(live))
    told_virtually(virtual)
    assert live.story == virtual.story
    assert live.decisions() == virtual.decisions()
    assert len(live.story) == 15
    assert [line[1:] for line in live.story if line[0] == "reuse"] == [
        (100, 0, 0, "none"),
        (114, 104, 104, "exact_continuation"),
        (14, 0, 0, "none"),
        (144, 0, 0, "none"),
        (144, 48, 48, "exact_continuation"),
    ]
    assert ("cancelled", "cancelled", 144, 0, 48, 0) in live.story
