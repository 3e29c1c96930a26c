"""The main job on a real model, live: an answer streams while decisions arrive, during prefill and during decode.

What happened is recorded, and the recording replayed on the same model.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from coresident.actors.events import Accepted, Granted, Released, YieldAsked
from coresident.actors.work import StepKind
from coresident.policies.views import WorkClass
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import assemble
from coresident.runtime.host.executor import DeviceExecutor
from coresident.runtime.host.live import open_live
from coresident.runtime.host.observers import Delivery
from coresident.traces.recorder import Recorder
from coresident.traces.replay import ReplayOptions, replay

from coresident.scheduler import Scheduler
from support.counting import CountingBackend

TOKENS = 256
INSTRUCTION = "Answer yes or no: does the text ask for help at once?"
ROWS = ("The kitchen is on fire, come now!", "The train leaves at nine.")
PROMPT = [{"role": "user", "content": "Write a long story about a lighthouse and the people who keep it. " * 40}]
EVERY = 16


@attrs.define
class Watch:
    """Counts, for each preemption, the segments that ended between the yield flag and the decision's grant."""

    backend: CountingBackend
    prefill_begun: trio.Event = attrs.field(factory=trio.Event)
    events: list[object] = attrs.field(factory=list)
    asked: int | None = None
    waits: list[int] = attrs.field(factory=list)

    def delivered(self, delivery: Delivery) -> None:
        for event in delivery.events():
            self.events.append(event)
            if isinstance(event, Granted):
                self._granted(event)

    def _granted(self, event: Granted) -> None:
        if event.kind is StepKind.PREFILL and event.work_class is WorkClass.FOREGROUND:
            self.prefill_begun.set()
        if event.work_class is WorkClass.DECISION and self.asked is not None:
            self.waits.append(self.backend.segments - self.asked)
            self.asked = None

    def token(self, request: str, index: int, at: int) -> None:
        return

    def dropped(self, error: Exception) -> None:
        raise error


async def _solo(scheduler: Scheduler) -> tuple[tuple[int, ...], object]:
    decision = await scheduler.decide(INSTRUCTION, ROWS, heads=("probability", "rank"))
    alone = await scheduler.generate(PROMPT, max_tokens=TOKENS, ignore_stop_tokens=True, retain=False)
    return alone.tokens, decision.scores


async def _together(scheduler: Scheduler, watch: Watch) -> tuple[tuple[int, ...], list[object]]:
    scores: list[object] = []

    async def decide() -> None:
        scores.append((await scheduler.decide(INSTRUCTION, ROWS, heads=("probability", "rank"))).scores)

    async def decide_in_prefill() -> None:
        await watch.prefill_begun.wait()
        for _ in range(3):
            await decide()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(decide_in_prefill)
        generation = scheduler.generate(PROMPT, max_tokens=TOKENS, ignore_stop_tokens=True, retain=False)
        async with generation as stream:
            count = 0
            async for _ in stream:
                count += 1
                if count % EVERY == 0:
                    nursery.start_soon(decide)
            result = await stream.result()
    return result.tokens, scores


def test_R10_an_answer_streams_while_decisions_arrive(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = structure({"generation": {"model": str(smollm2_path), "context": 2048}})
    opened = open_backend(config)
    backend = CountingBackend(opened.backend)
    assembly = assemble(config, backend, opened.heads)
    watch = Watch(backend)
    ask_yield = DeviceExecutor.ask_yield

    def asked(self: DeviceExecutor, grant: int, give_up: bool) -> None:
        ask_yield(self, grant, give_up)
        watch.asked = backend.segments

    async def main() -> None:
        async with open_live(assembly) as runtime:
            scheduler = Scheduler(runtime, opened.kits)
            alone, expected = await _solo(scheduler)
            recorder = Recorder.open(tmp_path / "story.jsonl", assembly)
            runtime.host.observers.add(watch)
            runtime.host.observers.add(recorder)
            monkeypatch.setattr(DeviceExecutor, "ask_yield", asked)
            together, scores = await _together(scheduler, watch)
            assert together == alone
            assert len(together) == TOKENS
            assert len(scores) >= TOKENS // EVERY + 1
            assert all(score == expected for score in scores)
        recorder.close()
        _check_waits(watch)
        assert assembly.device.statistics().ledger.reserved == 0

    trio.run(main)
    _check_replay(tmp_path / "story.jsonl", smollm2_path, watch)


def _check_replay(trace: Path, model: Path, watch: Watch) -> None:
    """The recording, replayed on the same model, has the outcomes of the run."""
    report = trio.run(replay, trace, ReplayOptions(model=str(model)))
    assert (report.backend, report.virtual, report.warnings) == ("reference", False, ())
    assert report.comparison.same
    accepted = sum(isinstance(event, Accepted) for event in watch.events)
    assert (report.comparison.compared, report.comparison.uncompared) == (accepted, 0)
    assert report.statistics.classes["foreground"].tokens == TOKENS


def _check_waits(watch: Watch) -> None:
    """No decision waited for more than one segment of other work, in prefill and in decode alike."""
    assert watch.waits
    assert max(watch.waits) <= 1
    preempted = {event.grant for event in watch.events if isinstance(event, YieldAsked)}
    kinds = {event.kind for event in watch.events if isinstance(event, Granted) and event.grant in preempted}
    assert {StepKind.PREFILL, StepKind.DECODE} <= kinds
    waited: dict[str, int] = {}
    running: Granted | None = None
    for event in watch.events:
        if isinstance(event, Accepted) and event.work_class is WorkClass.DECISION:
            waited[event.request] = int(running is not None and running.work_class > WorkClass.DECISION)
        elif isinstance(event, Released):
            running = None
        elif isinstance(event, Granted):
            running = event
            if event.work_class is WorkClass.DECISION:
                assert waited.pop(event.request, 0) <= 1
            waited = {request: count + (event.work_class > WorkClass.DECISION) for request, count in waited.items()}
    assert not waited
