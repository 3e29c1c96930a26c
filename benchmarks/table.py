"""Writes the table in ``benchmarks/README.md`` from ``results.json``, between its two marks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common import RESULTS

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def rows(results: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was measured, and the figures."""
    if "overhead" in results:
        yield from _overhead(results["overhead"])
    if "latency" in results:
        yield from _latency(results["latency"])
    if "prefix" in results:
        figures = results["prefix"]
        yield (
            f"time to first token, {figures['prompt_tokens']} tokens: cold, with 2,000 retained",
            f"{figures['cold_s']} s, {figures['retained_s']} s: {figures['cold_over_retained']} times",
        )
    if "shared_heads" in results:
        figures = results["shared_heads"]
        yield (
            f"retained for two conversations with one head of {figures['head_tokens']:,} tokens, each of them whole",
            f"{figures['retained_MiB']} MiB, {figures['whole_MiB']} MiB",
        )
    if "preparation" in results:
        yield from _preparation(results["preparation"])
    if "hosts" in results:
        yield from _hosts(results["hosts"])
    if "prediction" in results:
        yield from _prediction(results["prediction"])
    if "mlx_loop" in results:
        yield from _mlx_loop(results["mlx_loop"])
    if "mlx_workspace" in results:
        for kind, one in results["mlx_workspace"]["by_kind"].items():
            what = f"MLX workspace, {kind}: measured / charged at most, steps, steps above their charge"
            yield what, f"{one['most_of_charge']}, {one['steps']}, {one['breaches']}"
    if "mlx_growth" in results:
        yield from _mlx_growth(results["mlx_growth"])
    for name, form in (("vulkan_speed", "quantized weights"), ("vulkan_speed_half", "float16 weights")):
        if name in results:
            yield from _vulkan_speed(results[name], form)
    if "vulkan_warmup" in results:
        yield from _vulkan_warmup(results["vulkan_warmup"])
    if "longevity" in results:
        yield from _longevity(results["longevity"])
    if "simulation" in results:
        yield from _simulation(results["simulation"])
    if "process_executor" in results:
        yield from _process(results["process_executor"])
    if "staging" in results:
        figures = results["staging"]
        yield (
            f"staging a file of {figures['MiB']} MiB into a store / `sha256sum` of it",
            f"{figures['staging_over_sha256sum']} ({figures['staging_MiB_per_s']} / {figures['sha256sum_MiB_per_s']} "
            f"MiB/s; Python's hashlib alone {figures['hashlib_MiB_per_s']}, verifying {figures['verify_MiB_per_s']})",
        )
    if "speed" in results:
        figures = results["speed"]
        for depth, speeds in figures["by_depth"].items():
            prefill, decode = speeds["prefill_cpu_ms_per_token"], speeds["decode_cpu_ms_per_token"]
            yield f"reference backend at depth {depth}: prefill, decode", f"{prefill}, {decode} cpu-ms a token"
        account = f"account {figures['account_MiB']} MiB, of it weights {figures['weights_MiB']} MiB"
        yield "peak resident memory of that run", f"{figures['peak_resident_MiB']} MiB ({account})"


def _overhead(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part in ("decode", "prefill"):
        one = figures[part]
        yield (
            f"{part} through the scheduler / bare loop on the same backend",
            f"{one['median_of_paired_ratios']} ({one['scheduler_tokens_per_s']} / {one['bare_tokens_per_s']} tokens/s)",
        )


def _hosts(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Trio as a guest of the asyncio loop is what the other two are not."""
    for what in ("request", "token"):
        ratios, cpu = figures[f"{what}_over_trio"], figures[f"cpu_us_a_{what}"]
        yield (
            f"CPU time of a {what} on a device that takes none / the same under Trio",
            f"asyncio {ratios['asyncio']}, blocking {ratios['blocking']}, guest mode {ratios['guest']} "
            f"(Trio {cpu['trio']} us)",
        )


def _latency(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for situation in ("idle", "under_stream", "under_prefill"):
        cells = []
        for ordering in ("strict", "fifo"):
            one = figures[ordering][f"{situation}_s"]
            cells.append(f"{ordering} {one['p50']} / {one['p95']} / {one['max']} s")
        yield f"decision {situation.replace('_', ' ')}: p50 / p95 / max", "; ".join(cells)
    for ordering in ("strict", "fifo"):
        one = figures[ordering]
        yield (
            f"the stream with decisions in it / alone ({ordering})",
            f"{one['stream_total_over_alone']}",
        )


def _preparation(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    seconds = figures["first_token_s"]
    words = ", ".join(f"{name.replace('_', ' ')} {value} s" for name, value in seconds.items())
    yield "time to first token of about 2,000 tokens", words
    decisions = figures["decisions"]
    idle, during = decisions["idle_s"]["p50"], decisions["during_preparation_s"]["p50"]
    yield "decision during a preparation / idle, p50", f"{decisions['ratio_p50']} ({during} / {idle} s)"
    alone, disturbed = decisions["preparation_s_alone"], decisions["preparation_s_without_the_decisions"]
    yield (
        f"a preparation preempted {decisions['preemptions']} times: tokens computed twice, its own time / undisturbed",
        f"{decisions['tokens_computed_twice']}, {disturbed} / {alone} s",
    )


def _prediction(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for metric in ("queue_wait", "first_token", "token_gap", "decision"):
        one = figures[metric]
        if one["values"]:
            medians = f"medians {one['predicted_median_ms']}, {one['recorded_median_ms']} ms"
            yield (
                f"{metric.replace('_', ' ')} of a held-out run, predicted against recorded: median error, p90",
                f"{one['median_error']:.1%}, {one['p90_error']:.1%} ({medians}); the same run live again: "
                f"{one['live_again_median_error']:.1%}, {one['live_again_p90_error']:.1%}",
            )


def _mlx_loop(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    where = f"MLX on {figures['device']}"
    unit = "tokens a CPU-second" if figures["clock"] == "process_time" else "tokens/s"
    for part in ("decode", "prefill"):
        one = figures[part]
        yield (
            f"{where}: {part} through the scheduler / a bare loop in mlx-lm's manner",
            f"{one['median_of_paired_ratios']} ({one['scheduler_tokens_per_s']} / {one['bare_tokens_per_s']} {unit})",
        )
    memory = figures["memory"]
    yield (
        f"{where}: memory held after the load, of its plan; most workspace of a step, of the largest charge",
        f"{memory['held_MiB']} of {memory['planned_MiB']} MiB; "
        f"{memory['workspace_measured_MiB']} of {memory['workspace_charged_MiB']} MiB",
    )


def _process(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part in ("token", "request", "decision"):
        one = figures[f"us_a_{part}"]
        yield (
            f"synthetic checkpoint: a {part} in a worker process / on a thread",
            f"{one['ratio']} ({one['more']:.0f} us more on {one['thread']:.0f})",
        )


def _mlx_growth(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    grown = {name.replace("_", " "): figures["after"][name] - before for name, before in figures["before"].items()}
    yield (
        f"MLX, {figures['turns']:,} decode steps and decisions in turn: results that differ, growth",
        f"{figures['different_results']}; " + ", ".join(f"{name} {count:+}" for name, count in grown.items()),
    )


def _vulkan_speed(figures: Mapping[str, Any], form: str) -> Iterator[tuple[str, str]]:
    """CPU time where a CPU computes, else the wall's."""
    clock, unit = ("cpu_ms", "cpu-ms") if figures["kind"] == "cpu" else ("ms", "ms")
    where = f"Vulkan on {figures['device']}, {form}"
    for depth, one in figures["by_depth"]["vulkan"].items():
        cells = [
            f"{one[what][clock]} ({figures['by_depth']['reference'][depth][what]['cpu_ms']})"
            for what in ("prefill_a_token", "decode_a_token")
        ]
        yield f"{where}, up to depth {depth}: prefill, decode (reference backend)", f"{', '.join(cells)} {unit} a token"
    deepest, submits = list(figures["by_depth"]["vulkan"].values())[-1], figures["submits"]
    yield (
        f"{where}: the longest of {deepest['segments']} segments of a chunk",
        f"{deepest['longest_segment']['ms']} ms ({deepest['longest_segment'][clock]} {unit})",
    )
    yield (
        f"{where}: the host's CPU time in a decode step, recorded and submitted again; an empty submit and its wait",
        f"{deepest['first_decode']['host_cpu_ms']}, {deepest['decode_a_token']['host_cpu_ms']} cpu-ms; "
        f"{submits['empty']['ms']} ms, {submits['in_a_token']} of them a token, {submits['in_a_chunk']} a chunk",
    )


def _vulkan_warmup(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, run in figures.items():
        if isinstance(run, Mapping):
            ratios = [run[part]["ratio"]["cpu_ms"] for part in ("chunk", "token")]
            yield (
                f"Vulkan, a new process with {name.replace('_', ' ')}: first chunk, first token / slowest later ones",
                f"{ratios[0]}, {ratios[1]} of CPU time ({run['new_files_in_the_caches']} new files in the caches)",
            )


def _longevity(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("virtual_hour", "live"):
        one = figures[name]
        what = f"mixed work with cancels, {name.replace('_', ' ')}: requests, growth of traced memory"
        yield what, f"{one['requests']}, {one['memory_growth']}"


def _simulation(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("azure", "mooncake"):
        if name not in figures:
            continue
        one = figures[name]
        yield (
            f"simulation, {one['requests']} {name} requests, one token a step: steps a CPU-second",
            f"{one['steps_per_cpu_second']} ({one['steps']} steps)",
        )
        yield (
            f"simulation, {one['requests']} {name} requests, default quantum: times real time",
            f"{one['times_real_time_at_default_quantum']} ({one['steps_at_default_quantum']} steps)",
        )
    for one in figures["memory"]:
        yield f"simulation of {one['requests']} small requests: peak resident memory", f"{one['peak_MiB']} MiB"


def main() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    cores = sorted({figures["cores"] for figures in results.values()})
    lines = [
        f"Machine: {' or '.join(map(str, cores))} shared CPU cores, no GPU.",
        "",
        "| measured | result |",
        "|---|---|",
    ]
    lines += [f"| {what} | {result} |" for what, result in rows(results)]
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
