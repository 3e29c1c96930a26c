"""What preparation gives and costs.

Time to first token of 2,000 tokens cold, half prepared, prepared, and restored from disk; decision latency during
preparation against idle; and what preemptions cost a preparation. A preempted chunk goes on where it was, so the tokens
that were computed twice are counted and are zero.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import trio
from common import arguments, config, percentiles, report, text_of

from coresident import open_scheduler

INSTRUCTION = "Answer yes or no. Is this message urgent for the person who reads it? " + text_of(150)
ROWS = (text_of(30), text_of(32))


def text(seed: int) -> str:
    """About 2,000 tokens of words, different from the first one on."""
    return f"{seed} {seed * 7919} " + text_of(1900)


async def first_token(scheduler, prompt: str, retain: bool = False) -> float:
    result = await scheduler.generate(prompt, max_tokens=1, retain=retain)
    return result.first_token_ns / 1e9


async def times(scheduler, rounds: int, folder: Path) -> dict[str, float]:
    """Median seconds to the first token in each situation, on a different prompt every time."""
    cold, half, full, restored = [], [], [], []
    for index in range(rounds):
        cold.append(await first_token(scheduler, text(4 * index)))
        prompt = text(4 * index + 1)
        await scheduler.prepare(prompt[: len(prompt) // 2]).result()
        half.append(await first_token(scheduler, prompt))
        prompt = text(4 * index + 2)
        await scheduler.prepare(prompt).result()
        full.append(await first_token(scheduler, prompt))
        prompt = text(4 * index + 3)
        await scheduler.generate(prompt, max_tokens=1, conversation="stored")
        path = folder / f"{index}.safetensors"
        await scheduler.save_prefix(prompt, path)
        scheduler.release("stored")
        begin = trio.current_time()
        await scheduler.restore_prefix(path)
        await first_token(scheduler, prompt)
        restored.append(trio.current_time() - begin)
    named = {"cold": cold, "half_prepared": half, "prepared": full, "restored_from_disk": restored}
    return {name: statistics.median(values) for name, values in named.items()}


async def decisions(scheduler, count: int) -> dict[str, object]:
    """Decisions one after another while a long preparation is at work; and what they cost it."""

    async def one() -> float:
        return (await scheduler.decide(INSTRUCTION, ROWS)).total_ns / 1e9

    await one()
    idle = [await one() for _ in range(count)]
    alone = scheduler.prepare(text(9001) + text(9002), conversation="alone")
    begin = trio.current_time()
    await alone.result()
    undisturbed = trio.current_time() - begin
    before = scheduler.statistics().device
    preparation = scheduler.prepare(text(9003) + text(9004), conversation="disturbed")
    begin, during = trio.current_time(), []
    while not preparation.ended and len(during) < count:
        during.append(await one())
        await trio.sleep(0.2)
    result = await preparation.result()
    disturbed = trio.current_time() - begin - sum(during)
    after = scheduler.statistics().device
    preempted = after.suspensions - before.suspensions
    return {
        "idle_s": percentiles(idle),
        "during_preparation_s": percentiles(during),
        "ratio_p50": percentiles(during)["p50"] / percentiles(idle)["p50"],
        "preemptions": preempted,
        "tokens_computed_twice": result.computed + result.reused - result.goal,
        "preparation_s_alone": undisturbed,
        "preparation_s_without_the_decisions": disturbed,
    }


async def main() -> None:
    options = arguments(__doc__, rounds=3, count=8)
    with tempfile.TemporaryDirectory() as folder:
        async with open_scheduler(config(options.model, context=8192)) as scheduler:
            seconds = await times(scheduler, options.rounds, Path(folder))
            figures = await decisions(scheduler, options.count)
    cold = seconds["cold"]
    report(
        "preparation",
        {
            "first_token_s": seconds,
            "cold_over": {name: cold / value for name, value in seconds.items() if name != "cold"},
            "decisions": figures,
        },
        options.save,
    )


if __name__ == "__main__":
    trio.run(main)
