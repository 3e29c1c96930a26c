"""A small program for asyncio, checked strictly and never run."""

from __future__ import annotations

import asyncio

from coresident import Call, DecisionResult, EngineRegistry, GenerationResult, aio


async def main() -> None:
    async with aio.open_scheduler(record="run.jsonl") as scheduler:
        result: GenerationResult = await scheduler.generate("The sea", max_tokens=4)
        decision: DecisionResult = await scheduler.decide("Wet?", [result.text], deadline=1.5)
        async with scheduler.generate([1, 2, 3], stop=["."]) as stream:
            texts: list[str] = [piece.text async for piece in stream]
        print(texts, decision.scores["probability"], scheduler.statistics().device.ledger.free)
        # What the types must refuse; an unneeded "ignore" is an error of its own.
        await scheduler.decide("Wet?", "sea", deadline="soon")  # type: ignore[arg-type]
        scheduler.generate("The sea", maxtokens=4)  # type: ignore[call-arg]
        registry = EngineRegistry()
        registry.register("open", scheduler.engine("open"))
        tokens: tuple[int, ...] = (await registry.get().complete(Call(b"The sea"))).tokens
        print(tokens)


asyncio.run(main())
