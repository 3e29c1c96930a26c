"""How well a calibrated device model predicts a live run that it was not fitted to.

Three different spells of the same kind of work, recorded one after the other: conversations of two turns and decisions
in between, at times drawn from a seed. A device model is fitted to the first and the third. The second is replayed on
it in virtual time and compared with its recording, request by request; it lies between the others, so that a machine
whose speed drifts is not the same as a model that is wrong. What a prediction can be is bounded by the machine: so the
second is also replayed live, and compared with its recording in the same way.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import trio
from common import arguments, config, prompt_tokens, report, text_of
from coresident.traces.calibrate.error import MetricError, errors, timings_of
from coresident.traces.calibrate.run import calibrate
from coresident.traces.replay import ReplayOptions, replay

from coresident import Scheduler, open_scheduler

INSTRUCTION = "Answer yes or no: does the message ask for something? " + text_of(60)
ASKED_EVERY, DECIDED_EVERY = 4.0, 2.0


class Spell:
    """Work for about ``seconds``, drawn from a seed."""

    def __init__(self, scheduler: Scheduler, vocabulary: int, seed: int, seconds: float) -> None:
        self._scheduler = scheduler
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self._seconds = seconds
        self._count = seed * 1000

    async def run(self) -> None:
        """Submit everything, and wait for it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._at_intervals, nursery, self._ask, ASKED_EVERY)
            nursery.start_soon(self._at_intervals, nursery, self._decide, DECIDED_EVERY)

    async def _at_intervals(self, nursery: trio.Nursery, work: Any, mean: float) -> None:
        left = self._seconds
        while (pause := self._random.expovariate(1 / mean)) < left:
            left -= pause
            await trio.sleep(pause)
            nursery.start_soon(work)

    async def _ask(self) -> None:
        prompt = self._tokens(self._random.randint(40, 700))
        first = await self._scheduler.generate(prompt, max_tokens=self._random.randint(8, 32), ignore_stop_tokens=True)
        follow = (*prompt, *first.tokens, *self._tokens(self._random.randint(10, 60)))
        await self._scheduler.generate(
            follow, max_tokens=self._random.randint(8, 24), ignore_stop_tokens=True, after=first.request
        )

    async def _decide(self) -> None:
        rows = [text_of(self._random.randint(15, 45)) for _ in range(self._random.randint(1, 3))]
        await self._scheduler.decide(INSTRUCTION, rows)

    def _tokens(self, count: int) -> list[int]:
        self._count += 1
        return prompt_tokens(count, self._vocabulary, self._count)


async def record(path: Path, model: str, seed: int, seconds: float) -> None:
    """Record one spell."""
    async with open_scheduler(config(model, context=2048), record=path) as scheduler:
        vocabulary = 256 if model == "synthetic" else 40_000
        await Spell(scheduler, vocabulary, seed, seconds).run()


def milliseconds(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def figures_of(predicted: MetricError, again: MetricError) -> dict[str, Any]:
    """One metric: the prediction's error, and that of the same run again."""
    return {
        "values": predicted.count,
        "median_error": predicted.median,
        "p90_error": predicted.p90,
        "median_error_ms": milliseconds(predicted.median_ns),
        "recorded_median_ms": milliseconds(predicted.recorded_ns),
        "predicted_median_ms": milliseconds(predicted.predicted_ns),
        "live_again_median_error": again.median,
        "live_again_p90_error": again.p90,
        "live_again_median_ms": milliseconds(again.predicted_ns),
    }


async def main() -> None:
    options = arguments(__doc__, seconds=28.0)
    with tempfile.TemporaryDirectory() as folder:
        first, second, third, live = (Path(folder) / f"{name}.jsonl" for name in ("0", "1", "2", "live"))
        for seed, path in enumerate((first, second)):
            await record(path, options.model, seed, options.seconds)
        await replay(second, ReplayOptions(model=options.model, record=live))
        await record(third, options.model, 2, options.seconds)
        found = calibrate([first, third, second])
        recorded = timings_of(second).requests
        again = errors(recorded, timings_of(live).requests, recorded)
    figures: dict[str, Any] = {"held_out_requests": found.held_out, "gap_ms": found.device.gap_ns / 1e6}
    figures |= {metric: figures_of(error, again[metric]) for metric, error in found.errors.items()}
    figures["step_times_missed_median"] = {each.kind: each.median for each in found.fits}
    report("prediction", figures, options.save)
    for guess in found.guesses:
        print("a guess:", guess)


if __name__ == "__main__":
    trio.run(main)
