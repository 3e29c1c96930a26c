"""A chat under asyncio: a decision before each turn, and preparation of the next prompt while the person types.

python examples/asyncio_chat.py            # the model that CORESIDENT_MODEL names: smollm2, a GGUF file, a folder
"""

from __future__ import annotations

import asyncio

from coresident import aio

STANDING = [{"role": "system", "content": "You answer in one short sentence."}]
URGENT = "Does this need an answer at once? Answer yes or no."


async def turn(scheduler: aio.Scheduler, history: list[dict[str, str]], said: str) -> None:
    """One question: decide, answer piece by piece, and remember."""
    urgent = await scheduler.decide(URGENT, [said], deadline=5)
    if urgent.outcome == "completed":
        print(f"[urgent: {urgent.scores['probability'][0]:.0%}]")
    history.append({"role": "user", "content": said})
    async with scheduler.generate([*STANDING, *history], max_tokens=48, conversation="chat") as answer:
        async for piece in answer:
            print(piece.text, end="", flush=True)
        result = await answer.result()
    print(f"\n[{result.reused} tokens reused, {result.prefilled} computed]")
    history.append({"role": "assistant", "content": result.text})


async def main() -> None:
    history: list[dict[str, str]] = []
    async with aio.open_scheduler() as scheduler:
        print(f"{scheduler.label}. An empty line ends the chat.")
        while True:
            scheduler.prepare(STANDING, history, conversation="chat")
            try:
                said = await asyncio.to_thread(input, "> ")
            except EOFError:
                return
            if not said:
                return
            await turn(scheduler, history, said)


if __name__ == "__main__":
    asyncio.run(main())
