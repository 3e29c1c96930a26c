"""How fast a simulation is, and what it holds: steps per CPU-second, times real time, peak memory by trace length.

Two public traces of real services, 1,000 requests each, are imported and played on the default modelled device with all
statistics on and no digest: once with one token a step (``quantum`` fixed at 1), where the scheduler is asked most
often, and once with the default quantum. They are looked for in ``shared/traces`` beside the checkout, and left out
when they are not there. Memory is the peak of a process of its own that plays so many small requests.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
from common import arguments, report
from coresident.runtime.config import Bytes, Config, LimitsConfig, PoliciesConfig, PolicyConfig, structure
from coresident.traces.events_workload import ArriveGeneration, Content
from coresident.traces.importers.heading import imported_header
from coresident.traces.importers.run import import_trace
from coresident.traces.importers.turn import Settings
from coresident.traces.simulate import Simulation, simulate
from coresident.traces.writer import TraceWriter

SHARED = Path(__file__).parents[2] / "shared" / "traces"
TRACES = {"azure": "azure2023_conv.csv", "mooncake": "mooncake_conversation_trace.jsonl"}
BLOCK = 16


def config(quantum: int | None) -> Config:
    """The default scheduler with a long queue; a quantum of ``None`` is the default one."""
    base = structure({"device": {"backend": "modelled", "partition": "8 GiB"}, "decision": False})
    fixed = {} if quantum is None else {"quantum": PolicyConfig("fixed", {"tokens": quantum})}
    policies = PoliciesConfig(**fixed)
    return attrs.evolve(base, policies=policies, limits=LimitsConfig(requests=4096))


def timed(trace: Path, quantum: int | None, limit: int) -> tuple[Simulation, float]:
    """A simulation and its CPU seconds, reading the trace included."""
    begin = time.process_time()
    simulation = simulate(trace, config(quantum), limit=limit, digest=False)
    return simulation, time.process_time() - begin


def speed(trace: Path, limit: int) -> dict[str, Any]:
    """Steps per CPU-second with one token a step, and times real time at the default quantum."""
    single, seconds = timed(trace, 1, limit)
    default, default_seconds = timed(trace, None, limit)
    return {
        "requests": single.requests,
        "outcomes": dict(single.outcomes),
        "steps": single.steps,
        "steps_per_cpu_second": single.steps / seconds,
        "steps_at_default_quantum": default.steps,
        "steps_per_cpu_second_at_default_quantum": default.steps / default_seconds,
        "times_real_time_at_default_quantum": default.virtual_ns / 1e9 / default_seconds,
    }


def write_small(path: Path, count: int) -> None:
    """Requests of 32 tokens that generate 4, one every 200 ms, each with content of its own."""
    header = imported_header("benchmark", BLOCK, 0, decisions=False, ends=False)
    generation = attrs.evolve(header.generation, context=1024, retained=Bytes(16 * 1024**2))
    with path.open("wb", buffering=0) as file:
        writer = TraceWriter(file, attrs.evolve(header, generation=generation))
        for number in range(1, count + 1):
            prompt = Content(2 * BLOCK, (2 * number, 2 * number + 1))
            at = number * 200_000_000
            writer.add(ArriveGeneration(at, f"r{number}", "foreground", prompt, 4, "benchmark", expected=4))
        writer.flush()
        writer.seal()


def memory(folder: Path, count: int) -> dict[str, Any]:
    """Peak resident memory of a process that plays so many small requests."""
    trace = folder / f"{count}.jsonl"
    write_small(trace, count)
    done = subprocess.run([sys.executable, __file__, "--play", str(trace)], capture_output=True, check=True, text=True)
    kib, seconds = done.stdout.split()
    return {"requests": count, "peak_MiB": int(kib) / 1024, "cpu_ms_per_request": float(seconds) * 1000 / count}


def play(trace: str) -> None:
    """In a process of its own: play a trace, and print the peak in KiB and the CPU seconds."""
    begin = time.process_time()
    simulate(trace, digest=False)
    print(peak_kib(), time.process_time() - begin)


def peak_kib() -> int:
    """This program's own peak; what ``getrusage`` tells on Linux includes the process that started it."""
    status = Path("/proc/self/status")
    if status.is_file():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    options = arguments(__doc__, limit=1000, short=10_000, long=100_000, play="")
    if options.play:
        play(options.play)
        return
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for trace, file in TRACES.items():
            if not (SHARED / file).is_file():
                print(f"{file} is not in {SHARED}: left out", file=sys.stderr)
                continue
            import_trace(trace, SHARED / file, folder / f"{trace}.jsonl", Settings(limit=options.limit))
            figures[trace] = speed(folder / f"{trace}.jsonl", options.limit)
        figures["memory"] = [memory(folder, count) for count in (options.short, options.long)]
    report("simulation", figures, options.save)


if __name__ == "__main__":
    main()
