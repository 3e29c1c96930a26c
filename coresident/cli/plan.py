"""``coresident plan``: the memory account of a configuration, buffer by buffer."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..actors.memory.plan import AllocationPlan
from ..runtime.backends.catalog import open_backend
from . import options
from .failures import DOES_NOT_FIT, FAULT
from .here import computing_here
from .options import configured
from .plan_probe import measure, show_probe
from .plan_report import PlanReport, report_on
from .progress import Progress
from .wording import print_json, screen, size, table_of


def plan(
    config: options.ConfigFile = None,
    model: options.Model = None,
    backend: options.Backend = None,
    partition: options.Partition = None,
    workspace: options.Workspace = None,
    retained: options.Retained = None,
    context: options.Context = None,
    sequences: options.Sequences = None,
    chunk: options.Chunk = None,
    policy: options.Policy = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also load the models, run the largest steps, and measure them.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what a configuration takes of its partition: what fits, what does not, by how much.

    Loads nothing, but for --probe: then the largest step of each kind runs, which needs a prefill of the whole context
    first; with a real model on a CPU that takes minutes. Ends with exit code 1 when one of them takes more memory than
    it was charged for.
    """
    chosen = configured(
        config,
        model=model,
        backend=backend,
        partition=partition,
        workspace=workspace,
        retained=retained,
        context=context,
        sequences=sequences,
        chunk=chunk,
        policy=policy,
    )
    with computing_here(chosen) if probe else nullcontext(chosen) as chosen:
        opened = open_backend(chosen)
        report = report_on(chosen, opened)
        console = screen()
        if not as_json:
            show(report, console)
        probed = measure(chosen, opened, report.account.context, Progress()) if probe and report.fits else None
    if as_json:
        print_json(report.as_json() | ({} if probed is None else {"probe": [step.as_json() for step in probed]}))
    else:
        show_probe(probed, console)
    if not report.fits:
        raise typer.Exit(DOES_NOT_FIT)
    if any(step.tightest.breach for step in probed or ()):
        raise typer.Exit(FAULT)


def show(report: PlanReport, console: Console) -> None:
    """The account as tables and sentences."""
    for model, label in report.models.items():
        console.print(f"{model}: {label}", style="bold", soft_wrap=True)
    for table in (_buffers(report), _accounts(report), _steps(report)):
        console.print()
        console.print(table)
    console.print()
    for line, style in _verdict(report):
        console.print(line, style=style, soft_wrap=True)


def _buffers(report: PlanReport) -> Table:
    table = table_of(
        f"buffers at a context of {report.account.context:,} tokens", "buffer", ">count", ">each", ">total", "account"
    )
    for buffer in report.account.buffers:
        if not buffer.count:
            # What a plan names without allocating it: the largest array of a step, which the workspace holds.
            continue
        table.add_row(buffer.name, str(buffer.count), size(buffer.bytes), size(buffer.total), buffer.account)
    return table


def _accounts(report: PlanReport) -> Table:
    account = report.account
    table = table_of("accounts", "account", ">bytes", ">of the partition")
    rows = [*AllocationPlan(account.buffers).by_account().items(), ("total", account.total)]
    last = ("missing", -account.free) if account.free < 0 else ("free", account.free)
    for name, count in (*rows, ("partition", account.partition), last):
        style = "bold red" if name == "missing" else "bold" if name in ("total", "partition", "free") else None
        table.add_row(name, size(count), _share(count, account.partition), style=style)
    return table


def _share(count: int, partition: int) -> str:
    """Of the partition; beyond ten times of it a percentage says nothing."""
    share = count / partition
    return f"{share:.1%}" if share < 10 else f"{share:,.0f} times"


def _steps(report: PlanReport) -> Table:
    table = table_of("largest steps, charged to the workspace", "step", ">rows", ">tokens", ">context", ">charge", "")
    for step in report.steps:
        verdict = "fits" if step.fits else "does not fit the workspace budget"
        figures = (str(step.rows), f"{step.tokens:,}", f"{step.context:,}", size(step.charge))
        table.add_row(step.kind, *figures, verdict, style=None if step.fits else "bold red")
    return table


def _verdict(report: PlanReport) -> list[tuple[str, str]]:
    account = report.account
    if report.refusal is not None:
        return [(f"Does not fit: {_missing(report)}", "bold red")]
    lines = [(f"Admitted context: {account.context:,} tokens, {_why(report)}.", "bold green")]
    too_large = [step.kind for step in report.steps if not step.fits]
    if too_large:
        names = " and ".join(too_large)
        lines.append((f"Does not fit: {names} at full length; enlarge the workspace, or lower the chunk.", "bold red"))
    if report.margin is not None:
        lines.append((f"Charges of {report.backend} are estimates, with a margin of {report.margin} %.", "dim"))
    return lines


def _missing(report: PlanReport) -> str:
    """What is missing at the smallest context, with what would help; other refusals in their own words."""
    if not report.missing:
        return str(report.refusal)
    account = report.account
    return (
        f"{size(report.missing)} are missing even at a context of {account.context:,} tokens. A partition of "
        f"{size(account.total)} ({account.total:,} bytes) would do; or lower the workspace, the retained bytes or the "
        "sequences, or use a smaller model."
    )


def _why(report: PlanReport) -> str:
    if report.next_context is None:
        return "all that was configured" if report.cap_configured else "all that the model has"
    missing = size(report.next_missing or 0)
    return f"the most that fits: {report.next_context:,} would miss {missing} (the cap is {report.cap:,})"
