"""The comparison of a sweep on a terminal."""

from __future__ import annotations

import io

from coresident.traces.lab.plan import plan
from rich.console import Console

from coresident.cli.lab_notes import failures
from coresident.cli.lab_tables import comparison
from support.labs import lab_in

MS = 1_000_000
TIMES = ("queue_wait", "service", "latency", "first_token", "token_gap")


def row(policy, seed=0, work_class="foreground", *, p50=None, most=None, **values):
    figures = (("p50", p50), ("p99", most), ("max", most))
    times = {f"{name}_{figure}_ns": value for name in TIMES for figure, value in figures}
    ends = dict.fromkeys(("cancelled", "abstained", "failed", "refused", "open", "reused_tokens"), 0)
    about = {"trace": "day", "device": "box", "policy": policy, "seed": seed, "work_class": work_class, "error": None}
    figures = {"requests": 4, "completed": 4, "tokens_per_s": 10.0, "reuse_share": None, "reasons": None}
    prepared = {f"preparation_{word}_tokens": 7 for word in ("computed", "used", "wasted")}
    return about | ends | times | figures | prepared | values


def lines(table, wide=False, **terminal):
    console = Console(width=100, file=io.StringIO(), **terminal)
    with console.capture() as capture:
        for block in comparison(table):
            console.print(block.title)
            console.print(block.wide if wide else block.narrow)
            for note in block.notes:
                console.print(note, highlight=False)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_seeds_are_summed_up_as_median_of_medians_and_worst_of_worst():
    seeds = [row("fifo", seed, p50=p50 * MS, most=most * MS) for seed, p50, most in ((0, 1, 90), (1, 5, 20), (2, 7, 8))]
    assert lines([*seeds, row("edf", p50=0, most=2_500 * MS)]) == [
        "foreground, day on box, over 3 seeds: counts added up, median p50, worst of the rest",
        "wait first token gap",
        "policy done p50/max p50/max p50/max tok/s",
        "fifo 12/12 5.0/90 ms 5.0/90 ms 5.0/90 ms 10.0",
        "edf 4/4 0/2.5 s 0/2.5 s 0/2.5 s 10.0",
    ]


def test_what_did_not_happen_has_no_column_and_what_failed_no_row():
    table = [
        row("strict", completed=3, refused=1, reuse_share=0.5, reused_tokens=9),
        row("own", error="PolicyFault"),
        row("strict", work_class="decision", p50=MS, most=MS),
        row("strict", work_class="preparation"),
    ]
    assert lines(table) == [
        "foreground, day on box",
        "wait first token gap",
        "policy done refused p50/max p50/max p50/max tok/s reused",
        "strict 3/4 1 - - - 10.0 50%",
        "decision, day on box",
        "wait latency",
        "policy done p50/max p50/max",
        "strict 4/4 1.0/1.0 ms 1.0/1.0 ms",
        "preparation, day on box",
        "wait",
        "policy done p50/max computed used wasted",
        "strict 4/4 - 7 7 7",
    ]


def test_a_wide_table_has_the_99th_percentiles_and_every_cell_one_unit():
    table = [
        row("a", work_class="preparation", p50=50_000, most=2_500 * MS),
        row("b", work_class="preparation", p50=MS),
    ]
    table[1] |= {"queue_wait_p99_ns": 20 * MS, "queue_wait_max_ns": 1_999 * MS}
    told = lines(table, wide=True)
    assert told[2].startswith("policy done p50/p99/max")
    assert told[3].startswith("a 4/4 0.05/2,500/2,500 ms 7")
    assert told[4].startswith("b 4/4 1.0/20/1,999 ms 7")


def test_the_best_of_a_column_is_bold_unless_all_are_as_good():
    table = [
        row(name, work_class="decision", p50=p50 * MS, most=9 * MS) for name, p50 in (("a", 1), ("b", 2), ("c", 1))
    ]
    a, b, _ = lines(table, force_terminal=True)[3:6]
    assert a.count("\x1b[1m1.0\x1b[0m/9.0 ms") == 2
    assert "\x1b[1m" not in b


def test_policies_that_nothing_tells_apart_are_named_once_for_all_classes_of_a_trace():
    names = ("strict", "aging", "edf", "fifo")
    table = [row(name, work_class="decision", p50=MS, most=MS) for name in names]
    table += [row(name, p50=MS, most=2 * MS if name == "edf" else MS) for name in names]
    told = [(place, line) for place, line in enumerate(lines(table)) if "same figures" in line]
    assert told == [(14, "strict, aging, fifo: the same figures: nothing in this trace tells them apart")]


def test_reasons_are_told_under_the_table():
    told = lines(
        [row(name, failed=1, reasons=f"DeviceLost: {count}") for name, count in (("a", 1), ("b", 1), ("c", 2))]
    )
    assert told[6:8] == ["a, b: DeviceLost: 1", "c: DeviceLost: 2"]


def test_many_failures_are_counted(tmp_path):
    runs = plan(lab_in(tmp_path, f"seeds = {list(range(12))}\ntraces = ['chat']"))
    error = {"error": {"type": "PolicyFault", "message": "it\x1b[31m raised"}}
    told = failures(runs, {run.id: error for run in runs})
    assert told[0] == "Failed: chat, default, default model, seed 0: PolicyFault: it\\x1b[31m raised"
    assert (len(told), told[-1]) == (11, "and 2 more failed: the table has them all")
