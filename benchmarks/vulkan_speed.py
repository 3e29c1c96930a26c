"""The Vulkan backend beside the reference backend: prefill and decode at several depths, what a step costs its host,
and the longest segment of a chunk.

Figures are milliseconds, of the wall (``ms``), of the process's CPUs with all threads of a driver (``cpu_ms``), and of
the thread that owns the device (``host_cpu_ms``): the cost of recording, submitting and reading back. On a CPU driver,
whose cores are shared, compare CPU time; on a GPU only the wall means something. ``--half 1`` runs the model's matrices
as float16. A GPU may have a larger ``--partition``.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import arguments, prompt_tokens, report
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.backends.checks import Bench, with_workspace
from coresident.runtime.backends.contract import DecodeInput
from coresident.runtime.backends.vulkan.preparing import device_of
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import assemble
from coresident.runtime.models.locate import find_model
from coresident.runtime.models.sampling import make_sampler
from halved import halved

from coresident import SamplingParams

CHUNK = 256
ROUND_TRIPS = 1000
Cost = dict[str, float]


def cost(act: Callable[[], object]) -> Cost:
    """What it takes."""
    clocks = {"ms": time.perf_counter, "cpu_ms": time.process_time, "host_cpu_ms": time.thread_time}
    began = {name: clock() for name, clock in clocks.items()}
    act()
    return {name: 1000 * (clock() - began[name]) for name, clock in clocks.items()}


def middle(costs: list[Cost]) -> Cost:
    """Medians."""
    return {name: statistics.median(one[name] for one in costs) for name in costs[0]}


def opened_on(backend: str, model: str, depth: int, partition: str, warm: bool = True) -> Bench:
    """A loaded model, warmed up or not, with one slot that reaches beyond the deepest measurement."""
    config = structure(
        {
            "device": {"backend": backend, "partition": partition, "workspace": "192 MiB"},
            "generation": {"model": model, "context": depth + CHUNK, "chunk": CHUNK, "sequences": 1, "retained": 0},
            "decision": False,
        },
        "benchmark",
    )
    opened = open_backend(config)
    bench = Bench(opened.backend, "generation", assemble(config, opened.backend, opened.heads).plans["generation"])
    bench.place()
    if warm:
        bench.warm()
    return bench


def chunk(bench: Bench, start: int, tokens: list[int]) -> tuple[Cost, list[Cost]]:
    """One chunk, and its segments."""
    segments: list[Cost] = []

    def run(workspace) -> None:
        steps, ended = bench.backend.prefill(workspace, bench.model, "generation", 0, start, tokens, None), object()
        going = True
        while going:
            found = []
            segments.append(cost(lambda found=found: found.append(next(steps, ended))))
            going = found[0] is not ended

    shape = StepShape(StepKind.PREFILL, 1, len(tokens), start + len(tokens))
    return cost(lambda: with_workspace(bench, shape, run)), segments


def decode(bench: Bench, depth: int, count: int) -> list[Cost]:
    """Decode steps at a depth, greedily; the first may have to record what the others submit again."""
    sampler, shape = make_sampler(SamplingParams()), StepShape(StepKind.DECODE, 1, 1, depth + count)

    def step(index: int) -> None:
        row = DecodeInput(0, depth + index, 1000 + index)
        with_workspace(bench, shape, lambda space: list(bench.backend.decode(space, bench.model, [row], [sampler])))

    return [cost(lambda index=index: step(index)) for index in range(count)]


def at_depths(bench: Bench, depths: list[int], count: int) -> dict[str, dict[str, object]]:
    """Per depth: tokens prefilled since the one before, the chunk before it once more, and decode steps there."""
    tokens, figures, low = prompt_tokens(max(depths), bench.backend.describe(bench.model).vocabulary), {}, 0
    for depth in depths:
        runs = [(start, chunk(bench, start, tokens[start : start + CHUNK])) for start in range(low, depth, CHUNK)]
        again, segments = chunk(bench, runs[-1][0], tokens[runs[-1][0] : depth])
        steps = decode(bench, depth, count)
        figures[str(depth)] = {
            "prefill_a_token": {
                name: sum(whole[name] for _, (whole, _) in runs) / (depth - low) for name in runs[0][1][0]
            },
            "last_chunk": runs[-1][1][0],
            "last_chunk_again": again,
            "longest_segment": {name: max(segment[name] for segment in segments) for name in again},
            "segments": len(segments),
            "decode_a_token": middle(steps[1:]),
            "first_decode": steps[0],
        }
        low = depth
    return figures


def of_submits(bench: Bench, depth: int) -> dict[str, object]:
    """An empty submit with its wait, and how many a chunk and a token take."""
    device = device_of(bench.backend)
    with device.record() as recording:
        recording.barrier()
        commands = recording.finish()
    trips = [cost(lambda: device.run([commands])) for _ in range(ROUND_TRIPS)]
    tokens, counts = prompt_tokens(CHUNK, bench.backend.describe(bench.model).vocabulary), []
    for act in (lambda: decode(bench, depth, 1), lambda: chunk(bench, 0, tokens)):
        before = device.submits
        act()
        counts.append(device.submits - before)
    return {"empty": middle(trips), "in_a_token": counts[0], "in_a_chunk": counts[1]}


def ratios(reference: dict, vulkan: dict) -> dict[str, Cost]:
    """Vulkan's time over the reference backend's, by what was done and the deepest depth."""
    deepest = list(reference)[-1]
    return {
        what: {name: vulkan[deepest][what][name] / reference[deepest][what][name] for name in ("ms", "cpu_ms")}
        for what in ("prefill_a_token", "decode_a_token")
    }


def main() -> None:
    options = arguments(__doc__, half=0, depths="256,1024,2048", decode=12, partition="2 GiB")
    depths = [int(text) for text in options.depths.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if options.half:
            model = str(halved(find_model(model).path, Path(folder) / "half.gguf"))
        found = {}
        for name in ("reference", "vulkan"):
            bench = opened_on(name, model, max(depths), options.partition)
            found[name] = at_depths(bench, depths, options.decode)
            if name == "vulkan":
                info, label = device_of(bench.backend).info, bench.backend.describe(bench.model).label
                submits = of_submits(bench, max(depths))
            bench.backend.unload(bench.model)
    figures = {"device": info.name, "kind": info.kind, "driver": info.driver, "weights": label}
    report(
        "vulkan_speed_half" if options.half else "vulkan_speed",
        {**figures, "by_depth": found, "ratios": ratios(found["reference"], found["vulkan"]), "submits": submits},
        options.save,
    )


if __name__ == "__main__":
    main()
