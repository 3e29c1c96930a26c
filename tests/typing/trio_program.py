"""A small program for Trio, checked strictly and never run."""

from __future__ import annotations

import trio

from coresident import DecisionResult, GenerationResult, open_scheduler


async def main() -> None:
    async with open_scheduler(record="run.jsonl") as scheduler:
        result: GenerationResult = await scheduler.generate("The sea", max_tokens=4)
        decision: DecisionResult = await scheduler.decide("Wet?", [result.text], deadline=1.5)
        async with scheduler.generate([1, 2, 3], stop=["."]) as stream:
            texts: list[str] = [piece.text async for piece in stream]
        print(texts, decision.scores["probability"], scheduler.statistics().device.ledger.free)


trio.run(main)
