"""Records the sample traces in ``traces/samples/``: run it after a change of the format, on a machine with SmolLM2.

Samples hold token counts and block numbers only, as every trace does unless asked otherwise. ``--only NAME`` records
one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from common import arguments, config, text_of

from coresident import Preparation, Scheduler, open_scheduler

FOLDER = Path(__file__).parent.parent / "traces" / "samples"
INSTRUCTION = "Answer yes or no: does the message ask a question?"
TURNS = (
    "What does a lighthouse keeper do all day?",
    "And at night?",
    "Thank you. Tell me one more thing about storms.",
)
LONG = [{"role": "user", "content": text_of(1400)}]


async def chat(scheduler: Scheduler) -> None:
    """A decision before each of three turns; the person thinks between them; the conversation is reused."""
    messages: list[dict[str, str]] = []
    ended: str | None = None
    for turn in TURNS:
        await trio.sleep(0.4)
        decision = await scheduler.decide(INSTRUCTION, [turn], heads=("probability",), after=ended)
        messages.append({"role": "user", "content": turn})
        answer = await scheduler.generate(messages, max_tokens=24, after=decision.request)
        messages.append({"role": "assistant", "content": answer.text})
        ended = answer.request


async def prefill(scheduler: Scheduler) -> None:
    """Decisions of two rows, half a second apart, inside one long prefill."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer, scheduler)
        for _ in range(6):
            await trio.sleep(0.5)
            nursery.start_soon(_decide, scheduler)


async def _answer(scheduler: Scheduler) -> None:
    await scheduler.generate(LONG, max_tokens=8)


async def _decide(scheduler: Scheduler) -> None:
    await scheduler.decide(INSTRUCTION, [text_of(20), text_of(24)], heads=("rank", "choice"), deadline=60)


async def cancels(scheduler: Scheduler) -> None:
    """A prefill cancelled midway and sent again, an answer cancelled after a few tokens and continued, a utility
    beside it.
    """
    with trio.move_on_after(2.0):
        await scheduler.generate(LONG, max_tokens=16)
    again = await scheduler.generate(LONG, max_tokens=16)
    async with scheduler.generate(LONG, max_tokens=64, after=again.request) as stream:
        count = 0
        async for _ in stream:
            count += 1
            if count == 5:
                break
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_utility, scheduler, stream.request)
        await scheduler.generate(LONG, max_tokens=12, after=stream.request)


async def _utility(scheduler: Scheduler, after: str) -> None:
    await scheduler.generate(
        "Title of a story about storms:", max_tokens=6, work_class="utility", retain=False, after=after
    )


async def preparation(scheduler: Scheduler) -> None:
    """Documents are attached, and prepared while the person types a question about them.

    The first is there in time, although a decision comes between. The second is replaced by a third, and the question
    about that comes before it is done.
    """
    messages = [{"role": "system", "content": "You answer questions about documents."}, _document("harbour")]
    first = scheduler.prepare(messages[:1], messages[1:], conversation="documents")
    await trio.sleep(0.4)
    await scheduler.decide(INSTRUCTION, [TURNS[1]], heads=("probability",))
    await first.result()
    await trio.sleep(0.5)
    ended = await _ask(scheduler, messages)
    for name in ("railway", "lighthouse"):
        known = [*messages, _document(name)]
        await _computing(scheduler.prepare(known[:1], known[1:], conversation="documents", after=ended))
    await _ask(scheduler, known)


async def _computing(preparation: Preparation) -> None:
    """Until some of it is there and some is not."""
    while not preparation.progress[0]:
        await trio.sleep(0.1)


def _document(name: str) -> dict[str, str]:
    return {"role": "user", "content": f"{text_of(40)} {name} {text_of(460)}"}


async def _ask(scheduler: Scheduler, messages: list[dict[str, str]]) -> str:
    messages.append({"role": "user", "content": TURNS[1]})
    answer = await scheduler.generate(messages, max_tokens=16)
    messages.append({"role": "assistant", "content": answer.text})
    return answer.request


SAMPLES: dict[str, Callable[[Scheduler], Awaitable[None]]] = {
    "chat": chat,
    "prefill": prefill,
    "cancels": cancels,
    "preparation": preparation,
}


async def main() -> None:
    options = arguments(__doc__, only="")
    for name in [options.only] if options.only else list(SAMPLES):
        path = FOLDER / f"{name}.jsonl"
        async with open_scheduler(config(options.model, context=2048), record=path) as scheduler:
            await SAMPLES[name](scheduler)
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    trio.run(main)
