"""Time to first token of 2,000 + 50 tokens: cold, and when the first 2,000 are a retained prefix."""

from __future__ import annotations

import statistics

import trio
from common import arguments, config, prompt_tokens, report

from coresident import open_scheduler

HEAD, TAIL = 2000, 50


async def main() -> None:
    options = arguments(__doc__, rounds=3)
    cold, warm, reused = [], [], []
    async with open_scheduler(config(options.model, context=4096)) as scheduler:
        vocabulary = 40_000 if options.model != "synthetic" else 256
        for index in range(options.rounds):
            head = prompt_tokens(HEAD, vocabulary, seed=2 * index + 1)
            tail = prompt_tokens(TAIL, vocabulary, seed=2 * index + 2)
            first = await scheduler.generate([*head, *tail], max_tokens=1, retain=False)
            cold.append(first.first_token_ns / 1e9)
            await scheduler.generate(head, max_tokens=1)
            again = await scheduler.generate([*head, *tail], max_tokens=1, retain=False)
            warm.append(again.first_token_ns / 1e9)
            reused.append(again.reused)
    figures = {
        "prompt_tokens": HEAD + TAIL,
        "reused_tokens": reused,
        "cold_s": statistics.median(cold),
        "retained_s": statistics.median(warm),
        "cold_over_retained": statistics.median(c / w for c, w in zip(cold, warm, strict=True)),
    }
    report("prefix", figures, options.save)


if __name__ == "__main__":
    trio.run(main)
