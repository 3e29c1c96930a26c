"""Bytes that two conversations with one head of 2,000 tokens retain, against what each of them whole would take."""

from __future__ import annotations

import trio
from common import arguments, config, prompt_tokens, report

from coresident import open_scheduler

HEAD, TAIL = 2000, 50


async def main() -> None:
    options = arguments(__doc__)
    async with open_scheduler(config(options.model, context=4096)) as scheduler:
        vocabulary = 40_000 if options.model != "synthetic" else 256
        head = prompt_tokens(HEAD, vocabulary, seed=1)
        for seed in (2, 3):
            tail = prompt_tokens(TAIL, vocabulary, seed=seed)
            await scheduler.generate([*head, *tail], max_tokens=1, conversation=str(seed))
        while (now := scheduler.statistics().generation).open or now.prefixes.entries < 2:
            await trio.sleep(0.01)
    kept = now.prefixes
    figures = {
        "head_tokens": HEAD,
        "retained_MiB": kept.used / 2**20,
        "whole_MiB": (kept.used + kept.shared) / 2**20,
    }
    report("shared_heads", figures, options.save)


if __name__ == "__main__":
    trio.run(main)
