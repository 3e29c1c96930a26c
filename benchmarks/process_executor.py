"""What a worker process costs: the process executor against the thread executor, a token, a request and a decision.

Rounds alternate within one run, on a modelled device that takes no time, so that what is measured is the way of a
token and of a step alone: wall-clock microseconds by the scheduler's own clock, medians of rounds, their differences,
and ratios. ``start`` is from opening to ready, in seconds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import trio
from common import arguments, prompt_tokens, report
from coresident.runtime.config import structure

from coresident import open_scheduler

REQUESTS, TOKENS, DECISIONS, PROMPT = 100, 1000, 100, prompt_tokens(16, 256)
WHAT = ("start_s", "us_a_request", "us_a_token", "us_a_decision")
DEVICE = """
schema = "coresident.device/1"
label = "a device that takes no time"
source = "none"
device = { partition = "2 GiB", workspace = "192 MiB", segments = 1 }
model = { context_limit = 8192, vocabulary = 32000 }
memory = { weights = 1048576, kv_per_token = 1024, workspace_per_token = 1024 }
[times]
load = 1
warmup = 1
prefill = 1
decode = 1
decision = 1
copy = 1
save = 1
restore = 1
store = 1
fetch = 1
"""


def config(executor: str, device: Path):
    """A modelled device whose steps end at once."""
    return structure(
        {
            "device": {"backend": "modelled", "model": str(device), "executor": executor},
            "generation": {"context": 4096},
        }
    )


def each(begin: float, count: int) -> float:
    return (time.perf_counter() - begin) * 1e6 / count


async def measure(executor: str, device: Path) -> tuple[float, ...]:
    """The figures of one round, in the order of ``WHAT``."""
    begin = time.perf_counter()
    async with open_scheduler(config(executor, device)) as scheduler:
        start = time.perf_counter() - begin
        await scheduler.generate(PROMPT, max_tokens=8, retain=False)
        begin = time.perf_counter()
        for _ in range(REQUESTS):
            await scheduler.generate(PROMPT, max_tokens=1, retain=False)
        request = each(begin, REQUESTS)
        begin = time.perf_counter()
        await scheduler.generate(PROMPT, max_tokens=TOKENS, retain=False, ignore_stop_tokens=True)
        token = each(begin, TOKENS)
        await scheduler.decide("Is it food?", ["bread"])
        begin = time.perf_counter()
        for _ in range(DECISIONS):
            await scheduler.decide("Is it food?", ["bread", "stone"])
        return start, request, token, each(begin, DECISIONS)


def main() -> None:
    options = arguments(__doc__, rounds=5)
    rounds: dict[str, list[tuple[float, ...]]] = {"thread": [], "process": []}
    with tempfile.TemporaryDirectory() as folder:
        device = Path(folder) / "no_time.toml"
        device.write_text(DEVICE)
        for index in range(options.rounds + 1):
            for executor, figures in rounds.items():
                measured = trio.run(measure, executor, device)
                if index:
                    figures.append(measured)
    result = {}
    for place, what in enumerate(WHAT):
        thread, process = (statistics.median(one[place] for one in rounds[name]) for name in ("thread", "process"))
        result[what] = {"thread": thread, "process": process, "more": process - thread, "ratio": process / thread}
    report("process_executor", result, options.save)


if __name__ == "__main__":
    main()
