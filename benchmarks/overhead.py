"""What the scheduler costs: decode and prefill speed through it, against a bare loop over the same backend.

The two alternate within one run; figures are tokens per second, and the ratio of medians (scheduler / bare).
"""

from __future__ import annotations

import statistics
import time

import trio
from common import arguments, config, prompt_tokens, report
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.backends.contract import DecodeInput
from coresident.runtime.host.assembly import assemble
from coresident.runtime.models.sampling import make_sampler

from coresident import SamplingParams, open_scheduler

PROMPT, ANSWER = 300, 64


def drain(segments):
    """Run a backend operation to its end; its value."""
    while True:
        try:
            next(segments)
        except StopIteration as end:
            return end.value


class BareLoop:
    """The same model with nothing around it: chunks, then one decode call for each token."""

    def __init__(self, model: str) -> None:
        opened = open_backend(config(model, context=1024))
        self.assembly = assemble(config(model, context=1024), opened.backend, opened.heads)
        self.backend = opened.backend
        for key, plan in self.assembly.plans.items():
            drain(self.backend.load(key, plan, True))

    def run(self, tokens: list[int]) -> tuple[float, float]:
        """Prefill and decode seconds."""
        sampler = make_sampler(SamplingParams())
        begin = time.perf_counter()
        space = self.backend.open_workspace(128 << 20)
        for start in range(0, len(tokens), 256):
            chunk = tokens[start : start + 256]
            last = sampler if start + 256 >= len(tokens) else None
            sampled = drain(self.backend.prefill(space, "generation", "generation", 0, start, chunk, last))
        space.close()
        middle = time.perf_counter()
        for position in range(len(tokens), len(tokens) + ANSWER - 1):
            space = self.backend.open_workspace(1 << 20)
            rows = [DecodeInput(0, position, sampled.token)]
            (sampled,) = drain(self.backend.decode(space, "generation", rows, [sampler]))
            space.close()
        return middle - begin, time.perf_counter() - middle


async def through(scheduler, tokens: list[int]) -> tuple[float, float]:
    """Time to first token and the rest, by the scheduler's own clock."""
    result = await scheduler.generate(tokens, max_tokens=ANSWER, ignore_stop_tokens=True, retain=False)
    return result.first_token_ns / 1e9, (result.total_ns - result.first_token_ns) / 1e9


async def main() -> None:
    options = arguments(__doc__, rounds=7)
    bare = BareLoop(options.model)
    vocabulary = bare.assembly.models["generation"].vocabulary
    bare_times, scheduled_times = [], []
    async with open_scheduler(config(options.model, context=1024)) as scheduler:
        for index in range(options.rounds + 1):
            tokens = prompt_tokens(PROMPT, vocabulary, seed=index)
            ours = await through(scheduler, tokens)
            theirs = bare.run(tokens)
            if index:
                scheduled_times.append(ours)
                bare_times.append(theirs)
    figures = {}
    for name, column, count in (("prefill", 0, PROMPT), ("decode", 1, ANSWER - 1)):
        alone = count / statistics.median(times[column] for times in bare_times)
        scheduled = count / statistics.median(times[column] for times in scheduled_times)
        pairs = [b[column] / s[column] for b, s in zip(bare_times, scheduled_times, strict=True)]
        figures[name] = {
            "bare_tokens_per_s": alone,
            "scheduler_tokens_per_s": scheduled,
            "ratio_of_medians": scheduled / alone,
            "median_of_paired_ratios": statistics.median(pairs),
        }
    report("overhead", figures, options.save)


if __name__ == "__main__":
    trio.run(main)
