"""The reference backend alone: prefill and decode speed at several depths in CPU time, and peak memory against
the account.
"""

from __future__ import annotations

import resource
import time

from common import arguments, config, prompt_tokens, report
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.backends.contract import DecodeInput
from coresident.runtime.host.assembly import assemble
from coresident.runtime.models.sampling import make_sampler
from overhead import drain

from coresident import SamplingParams

DEPTHS = (512, 2048, 6144)


def main() -> None:
    options = arguments(__doc__, decode=16)
    opened = open_backend(config(options.model))
    assembly = assemble(config(options.model), opened.backend, opened.heads)
    backend = opened.backend
    for key, plan in assembly.plans.items():
        drain(backend.load(key, plan, True))
    tokens = prompt_tokens(max(DEPTHS), assembly.models["generation"].vocabulary)
    sampler = make_sampler(SamplingParams())
    figures = {}
    for depth in DEPTHS:
        begin = time.process_time()
        space = backend.open_workspace(200 << 20)
        for start in range(0, depth, 256):
            chunk = tokens[start : start + 256]
            drain(backend.prefill(space, "generation", "generation", 0, start, chunk, None))
        middle = time.process_time()
        for index in range(options.decode):
            rows = [DecodeInput(0, depth + index, tokens[index])]
            drain(backend.decode(space, "generation", rows, [sampler]))
        space.close()
        figures[str(depth)] = {
            "prefill_cpu_ms_per_token": 1000 * (middle - begin) / depth,
            "decode_cpu_ms_per_token": 1000 * (time.process_time() - middle) / options.decode,
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    report(
        "speed",
        {
            "by_depth": figures,
            "peak_resident_MiB": peak / 2**20,
            "account_MiB": assembly.account.total / 2**20,
            "weights_MiB": sum(b.total for b in assembly.account.buffers if b.account.startswith("weights/")) / 2**20,
        },
        options.save,
    )


if __name__ == "__main__":
    main()
