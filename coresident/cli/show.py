"""``coresident show``: a trace in words and figures, and what each prepared token was worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..traces.header import Header
from ..traces.preparations import PreparationAccount, PreparationStatistics
from ..traces.reader import TraceReader
from ..traces.report.imported import Workload, how_to_run
from ..traces.statistics import Tally, TraceStatistics
from . import options
from .tables import checkpoint_lines, class_line, class_table, device_lines
from .timeline import Moment, Timeline
from .wording import duration, print_json, screen, shown, size, table_of

FATES = ("kept", "evicted", "wasted")


def show(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace that this program recorded.")],
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Most lines of the timeline and of the account.")] = 40,
    as_json: options.AsJson = False,
) -> None:
    """Tell what happened in a recorded run, and what each prepared token was worth.

    Of an imported trace, tell what it asks for. With --json, everything is there whatever the limit.
    """
    tally, timeline = Tally(), Timeline()
    with TraceReader(trace) as reader:
        header = reader.header
        workload = Workload(header)
        for event in reader:
            tally.add(event)
            timeline.add(event)
            workload.add(event)
    statistics = tally.result()
    if as_json:
        print_json(_body(trace, header, statistics, timeline))
    elif header.imported:
        _print_imported(trace, header, statistics, workload, screen())
    else:
        _print(trace, header, statistics, timeline.moments, limit, screen())


def _body(trace: Path, header: Header, statistics: TraceStatistics, timeline: Timeline) -> dict[str, Any]:
    return {
        "trace": str(trace),
        "header": attrs.asdict(header),
        "statistics": statistics.as_dict(),
        "timeline": [attrs.asdict(moment) for moment in timeline.moments],
    }


def _print(
    trace: Path, header: Header, statistics: TraceStatistics, moments: list[Moment], limit: int, console: Console
) -> None:
    console.print(f"{trace}, recorded by version {header.recorded_by}", style="bold", soft_wrap=True)
    for line in _about(header):
        console.print(shown(line), soft_wrap=True)
    _print_classes(statistics, console)
    console.print()
    for line in device_lines(statistics.device) + checkpoint_lines(statistics):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(_timeline(moments[:limit]))
    _more(len(moments) - limit, console)
    if statistics.preparation is not None:
        console.print()
        console.print(_account(statistics.preparation.accounts[:limit]))
        _more(len(statistics.preparation.accounts) - limit, console)
        console.print(_total(statistics.preparation), style="bold", soft_wrap=True)


def _print_imported(
    trace: Path, header: Header, statistics: TraceStatistics, workload: Workload, console: Console
) -> None:
    """What it asks for, and how it went at its source where that is told: no device of ours had any of it."""
    console.print(f"{trace}, {workload.words()}.", style="bold", soft_wrap=True)
    console.print(f"To see what becomes of it, {how_to_run(trace)}.", soft_wrap=True)
    if header.ends:
        console.print()
        console.print("At its source:")
        ended = {name: entry for name, entry in statistics.classes.items() if entry.open < entry.requests}
        _print_classes(attrs.evolve(statistics, classes=ended), console)


def _print_classes(statistics: TraceStatistics, console: Console) -> None:
    for name, entry in statistics.classes.items():
        console.print()
        console.print(class_table(name, entry, None, compared=False))
        console.print(shown(class_line(name, statistics)), soft_wrap=True)


def _about(header: Header) -> list[str]:
    device, generation = header.device, header.generation
    lines = [f"Model: {model.label}, for {' and '.join(model.roles)}" for model in header.models]
    lines.append(
        f"Device: {device.backend}, {size(device.partition)}, {size(device.workspace)} of it for workspace; wanted are "
        f"segments of at most {device.yield_ms} ms"
    )
    lines.append(
        f"Generation: context of {device.admitted_context:,} tokens, {generation.sequences} at a time, chunks of "
        f"{generation.chunk}, {size(generation.retained)} for prefixes, {generation.reuse} reuse"
    )
    lines.append(f"Policies: {', '.join(f'{kind} {policy.name}' for kind, policy in header.policies.items())}")
    return lines


def _timeline(moments: list[Moment]) -> Table:
    table = table_of("timeline", ">at", "")
    for moment in moments:
        table.add_row(f"{moment.at / 1e9:.2f} s", moment.words)
    return table


def _account(accounts: tuple[PreparationAccount, ...]) -> Table:
    """One row a preparation. Of what it computed, ``used by`` and ``not used`` say everything."""
    columns = (">at", "", "for", "outcome", ">goal", ">computed", "used by", ">saved", "not used")
    table = table_of("what was prepared: when, for which conversation, in tokens", *columns)
    for place in (3, 6, 8):
        table.columns[place].no_wrap = True
    for account in accounts:
        unused = [f"{count:,} {fate}" for fate in FATES if (count := getattr(account, fate))]
        table.add_row(
            f"{account.at / 1e9:.2f} s",
            shown(account.request),
            shown(account.conversation) or "-",
            account.outcome or "open",
            f"{account.goal:,}",
            f"{account.computed:,}",
            "\n".join(f"{shown(use.request)} {use.tokens:,}" for use in account.uses) or "-",
            duration(account.saved_ns) if account.uses else "-",
            "\n".join(unused) or "-",
        )
    return table


def _total(all_of: PreparationStatistics) -> Text:
    words = f"{all_of.used:,} of {all_of.computed:,} prepared tokens were used"
    if all_of.prefill_token_ns is not None and all_of.used:
        words += (
            f", which saved about {duration(all_of.saved_ns)} before first tokens, at "
            f"{duration(round(all_of.prefill_token_ns))} a token in this run"
        )
    return Text(f"{words}; {all_of.kept:,} were kept, {all_of.evicted:,} evicted, {all_of.wasted:,} wasted.")


def _more(count: int, console: Console) -> None:
    if count > 0:
        console.print(f"and {count} more: --limit shows them, --json has them all", style="dim", soft_wrap=True)
