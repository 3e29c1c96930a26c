"""``coresident replay``: a trace's workload once more, on this device or another, and whether it came out the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..traces.drivers import Progress as Done
from ..traces.outcomes import Comparison
from ..traces.replay import ReplayOptions, ReplayReport
from ..traces.replay import replay as play
from . import options
from .failures import FAULT
from .faults import PolicyFaults
from .running import Interrupts, run
from .tables import class_line, class_table, device_lines
from .wording import duration, print_json, screen

MOST_DIFFERENCES = 10


def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace that this program recorded.")],
    backend: options.Backend = None,
    model: options.Model = None,
    policy: options.Policy = None,
    record: options.Record = None,
    as_json: options.AsJson = False,
) -> None:
    """Run a recorded workload again: in real time, or in virtual time with --backend modelled.

    Ends with exit code 1 when requests came out otherwise than recorded, when a policy misbehaved and another stood in,
    and when the replay could not be recorded as asked.
    """
    chosen = ReplayOptions(backend=backend, model=model, policy=policy, record=record)
    faults = PolicyFaults()
    report = run(partial(_with_progress, trace, chosen, faults))
    console = screen()
    if as_json:
        print_json({**report.as_dict(), "policy_faults": faults.messages})
    else:
        show(report, console)
        for line in faults.lines():
            console.print(line, style="bold red", soft_wrap=True)
    if not report.comparison.same or faults.messages or report.recording_error is not None:
        raise typer.Exit(FAULT)


async def _with_progress(
    trace: Path, chosen: ReplayOptions, faults: PolicyFaults, interrupts: Interrupts
) -> ReplayReport:
    """The bar is on stderr, and only on a terminal: stdout holds the result."""
    bar = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=bar, transient=True, disable=not bar.is_terminal) as progress:
        task = progress.add_task("replaying", total=None)

        def on_progress(now: Done) -> None:
            interrupts.check()
            progress.update(task, completed=now.done, total=now.total)

        return await play(trace, chosen, on_progress, [faults])


def show(report: ReplayReport, console: Console) -> None:
    """The replay beside the recording: a table per class of work, the device, and the outcomes."""
    where = "in virtual time" if report.virtual else "in real time"
    console.print(f"{report.trace} on {report.model}, backend {report.backend}, {where}", style="bold", soft_wrap=True)
    for name, statistics in report.statistics.classes.items():
        console.print()
        console.print(class_table(name, statistics, report.recorded.classes.get(name), compared=True))
        console.print(class_line(name, report.statistics), soft_wrap=True)
    console.print()
    for line in device_lines(report.statistics.device):
        console.print(line, soft_wrap=True)
    if not report.virtual:
        late = f"p50 {duration(report.drift.p50)}, max {duration(report.drift.max)}"
        console.print(f"Drift of the replay: submissions late by {late}.", soft_wrap=True)
    if report.overload is not None:
        console.print(
            f"Note: the device was offered about {report.overload:,.1f} times what it can do, by how long the run took "
            "against the arrivals: the waits measure that.",
            style="yellow",
            soft_wrap=True,
        )
    for warning in report.warnings:
        console.print(f"Note: {warning}", style="yellow", soft_wrap=True)
    for line, style in _outcomes(report):
        console.print(line, style=style, soft_wrap=True)


def _outcomes(report: ReplayReport) -> list[tuple[str, str]]:
    comparison = report.comparison
    if comparison.same:
        return [_all_same(comparison)]
    differences = comparison.differences
    head = f"Outcomes: {len(differences)} of {comparison.compared} requests ended otherwise than recorded."
    lines: list[tuple[str, str]] = [(head, "bold red")]
    lines += [
        (f"  {each.request}: {_outcome(each.recorded)}, now {_outcome(each.replayed)}", "red")
        for each in differences[:MOST_DIFFERENCES]
    ]
    if len(differences) > MOST_DIFFERENCES:
        lines.append((f"  and {len(differences) - MOST_DIFFERENCES} more: --json has them all", "red"))
    return lines


def _all_same(comparison: Comparison) -> tuple[str, str]:
    """Nothing differs; where nothing could, only how requests ended now."""
    ended = ", ".join(f"{count:,} {outcome}" for outcome, count in comparison.ended.items())
    failed = comparison.uncompared - comparison.untold
    left = [f"{failed:,} had failed when recorded"] if failed else []
    if comparison.compared:
        left += [f"{comparison.untold:,} have no end in the trace"] if comparison.untold else []
        rest = "".join(f"; {words}" for words in left)
        return f"Outcomes: all {comparison.compared:,} requests ended as recorded{rest}.", "bold green"
    left += ["the source tells no outcomes to compare with"] if comparison.untold else []
    return f"Outcomes: {'; '.join([ended, *left])}.", "bold"


def _outcome(outcome: Any) -> str:
    tokens = f", {outcome.tokens} tokens" if outcome.tokens else ""
    return f"{outcome.outcome} ({outcome.reason or 'no reason'}{tokens})"
