"""What the scheduler costs on MLX: decode and prefill through it, against a bare loop in the manner of mlx-lm.

The bare loop has the same model class and weights, caches of a fixed capacity, the argmax on the device, and one
evaluation a token or chunk; nothing looks at a flag, a charge or a measured peak. The two alternate within one run.
Where MLX computes on the CPU, times are CPU seconds of the process, as cores are shared; elsewhere they are seconds.
Memory is what MLX counts, beside the plan. A slow device wants a small ``--answer`` and ``--prompt``.
"""

from __future__ import annotations

import statistics
import time

import mlx.core as mx
import trio
from common import arguments, config, prompt_tokens, report
from coresident.actors.events import Granted, Released
from coresident.actors.work import Measured
from coresident.runtime.backends.mlx.description import read_facts
from coresident.runtime.backends.mlx.loading import load_model
from coresident.runtime.backends.mlx.planning import device_limits
from coresident.runtime.backends.mlx.weight_arrays import on_cpu
from coresident.runtime.config import structure
from coresident.runtime.models.locate import find_model
from overhead import drain

from coresident import open_scheduler

CONTEXT, CHUNK = 1024, 256
clock = time.process_time if on_cpu() else time.perf_counter


class FixedCache:
    """What mlx-lm's classes ask of a layer's cache, with a capacity that is allocated once."""

    def __init__(self, sizes) -> None:
        shape = (1, sizes.kv_heads, CONTEXT, sizes.head_dim)
        self.keys, self.values = (mx.zeros(shape, getattr(mx, sizes.dtype)) for _ in range(2))
        self.offset = 0

    def update_and_fetch(self, keys, values):
        end = self.offset + keys.shape[2]
        self.keys[:, :, self.offset : end] = keys
        self.values[:, :, self.offset : end] = values
        self.offset = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def make_mask(self, tokens, return_array=False, window_size=None):
        return "causal" if tokens > 1 else None


class BareLoop:
    """The model, its caches, and nothing around them; full attention only."""

    def __init__(self, model: str) -> None:
        source = find_model(model)
        self.facts = read_facts(source)
        self.model = drain(load_model(source, self.facts)).weights
        self.caches = [FixedCache(self.facts.sizes) for _ in range(self.facts.sizes.layers)]
        mx.eval([(cache.keys, cache.values) for cache in self.caches])

    def run(self, tokens: list[int], answer: int) -> tuple[float, float, list[int]]:
        """Prefill and decode seconds, and what was generated."""
        for cache in self.caches:
            cache.offset = 0
        begin = clock()
        for start in range(0, len(tokens), CHUNK):
            token = self.next(tokens[start : start + CHUNK])
        middle = clock()
        found = [token]
        while len(found) < answer:
            found.append(self.next(found[-1:]))
        return middle - begin, clock() - middle, found

    def next(self, tokens: list[int]) -> int:
        """The likeliest token behind these."""
        body = self.model.model(mx.array([tokens]), self.caches)
        tied = self.model.args.tie_word_embeddings
        head = self.model.model.embed_tokens.as_linear if tied else self.model.lm_head
        token = mx.argmax(head(body[:, -1:])[0, -1])
        mx.eval(token)
        return token.item()


def on_mlx(model: str):
    """The benchmarks' configuration on MLX, without a decision model."""
    plain = config(model, context=CONTEXT)
    return structure(
        {
            "device": {"backend": "mlx", "partition": int(plain.device.partition), "workspace": "512 MiB"},
            "generation": {"model": model, "context": CONTEXT, "chunk": CHUNK, "sequences": 1, "retained": 0},
            "decision": False,
        },
        "benchmark",
    )


class Peaks:
    """Watches the scheduler: the most workspace that a grant took, and the most that one was charged."""

    def __init__(self) -> None:
        self.measured = self.charged = 0

    def delivered(self, delivery) -> None:
        for event in delivery.events():
            match event:
                case Granted(charge=charge):
                    self.charged = max(self.charged, charge)
                case Released(measured=Measured(workspace=workspace)):
                    self.measured = max(self.measured, workspace)

    def token(self, request: str, index: int, at: int) -> None:
        """Tokens take no workspace."""

    def dropped(self, error: Exception) -> None:
        raise error


async def through(scheduler, tokens: list[int], answer: int) -> tuple[float, float, list[int]]:
    """The same through the scheduler; decoding begins when the first piece arrives."""
    found, begin, middle = [], clock(), None
    async with scheduler.generate(tokens, max_tokens=answer, ignore_stop_tokens=True, retain=False) as stream:
        async for piece in stream:
            middle = middle or clock()
            found.append(piece.token)
    return middle - begin, clock() - middle, [token for token in found if token is not None]


def memory_figures(scheduler, held: int, peaks: Peaks) -> dict[str, float]:
    """What MLX counted, beside the plan: after the load, and in the hungriest step."""
    planned = sum(buffer.total for buffer in scheduler.account.buffers if buffer.account.startswith(("weights", "kv")))
    return {
        "held_MiB": held / 2**20,
        "planned_MiB": planned / 2**20,
        "workspace_measured_MiB": peaks.measured / 2**20,
        "workspace_charged_MiB": peaks.charged / 2**20,
    }


async def main() -> None:
    options = arguments(__doc__, rounds=5, prompt=256, answer=64)
    bare = BareLoop(options.model)
    bare_times, scheduled_times, equal = [], [], True
    before = mx.get_active_memory()
    peaks = Peaks()
    async with open_scheduler(on_mlx(options.model), observers=[peaks]) as scheduler:
        held = mx.get_active_memory() - before
        for index in range(options.rounds + 1):
            tokens = prompt_tokens(options.prompt, bare.facts.sizes.vocabulary, seed=index)
            ours = await through(scheduler, tokens, options.answer)
            theirs = bare.run(tokens, options.answer)
            equal = equal and ours[2] == theirs[2]
            if index:
                scheduled_times.append(ours)
                bare_times.append(theirs)
        figures = {
            "device": device_limits().device,
            "clock": clock.__name__,
            "same_tokens": equal,
            "memory": memory_figures(scheduler, held, peaks),
        }
    for name, column, count in (("prefill", 0, options.prompt), ("decode", 1, options.answer - 1)):
        alone, scheduled = (
            count / statistics.median(times[column] for times in both) for both in (bare_times, scheduled_times)
        )
        pairs = [b[column] / s[column] for b, s in zip(bare_times, scheduled_times, strict=True)]
        figures[name] = {
            "bare_tokens_per_s": alone,
            "scheduler_tokens_per_s": scheduled,
            "median_of_paired_ratios": statistics.median(pairs),
        }
    report("mlx_loop", figures, options.save)


if __name__ == "__main__":
    trio.run(main)
