"""``coresident simulate``: a lab of traces, policies, devices and seeds, each with each, under virtual time."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..traces import lab as lab_package
from ..traces.lab.columns import COLUMNS
from ..traces.lab.crews import Crew, Kind, crew
from ..traces.lab.file import Lab, load_lab
from ..traces.lab.plan import Run, plan
from ..traces.lab.store import Store, keeping
from ..traces.lab.sweep import Progress as Done
from ..traces.lab.sweep import Swept, sweep
from ..traces.lab.tables import Row, check_format, rows, write_table, write_timing
from . import options
from .failures import FAULT
from .lab_notes import failures, notes
from .lab_tables import comparison
from .wording import Screen, print_json, screen, shown

EXAMPLE = "example.toml"
_KINDS = {str: "text", int: "integer", float: "number"}


def _example(asked: bool) -> None:
    if asked:
        typer.echo(resources.files(lab_package).joinpath(EXAMPLE).read_text(encoding="utf-8"), nl=False)
        raise typer.Exit


def _columns(asked: bool) -> None:
    if asked:
        for column in COLUMNS:
            typer.echo(f"{column.name} ({_KINDS[column.kind]}): {column.about}")
        raise typer.Exit


def simulate(
    lab: Annotated[Path, typer.Argument(metavar="LAB", help="A lab file; --example shows one.")],
    executor: Annotated[
        Kind | None, typer.Option(help="What carries out the runs: processes if not said; cluster is dask.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Runs at a time; all cores if not.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A dask scheduler, such as tcp://host:8786; else its own.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
    example: Annotated[
        bool, typer.Option("--example", callback=_example, is_eager=True, help="Print a lab file to start from.")
    ] = False,
    columns: Annotated[
        bool, typer.Option("--columns", callback=_columns, is_eager=True, help="Say what the results' columns are.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Simulate traces x policies x devices x seeds, and compare the policies.

    Every finished run is kept in the lab's output folder at once. Starting again goes on where it stopped, and does
    again what failed. Ends with exit code 1 when a run failed.
    """
    asked = load_lab(lab)
    runs = plan(asked)
    if dry_run:
        _list(runs, as_json)
        return
    check_format(asked.format)
    kind = executor or (Kind.PROCESSES if cluster is None else Kind.CLUSTER)
    swept = _sweep(asked, runs, crew(kind, workers, cluster))
    table = rows(runs, swept.results)
    with keeping(asked.folder, len(swept.results), len(swept.results)):
        path = write_table(asked.folder, asked.format, table)
        write_timing(asked.folder, runs, swept.results)
    if as_json:
        print_json(_body(asked, swept, path, table))
    else:
        _show(asked, runs, swept, path, table)
    if swept.failed:
        raise typer.Exit(FAULT)


def _list(runs: tuple[Run, ...], as_json: bool) -> None:
    count = len({run.id for run in runs})
    if as_json:
        names = ("id", "trace", "policy", "device", "seed")
        print_json({"runs": [{name: getattr(run, name) for name in names} for run in runs], "different": count})
        return
    console = screen()
    for run in runs:
        console.print(f"{run.id}  {shown(run.label)}", soft_wrap=True)
    same = "" if count == len(runs) else f", {count} of them different"
    console.print(f"{len(runs)} runs{same}.", style="bold")


def _sweep(lab: Lab, runs: tuple[Run, ...], crew: Crew) -> Swept:
    """With a bar on stderr, on a terminal only: stdout holds the result."""
    bar, latest = Console(stderr=True), Done(0, 0, 0)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    store = Store(lab.folder)
    try:
        with Progress(*columns, console=bar, transient=True, disable=not bar.is_terminal) as progress:
            task = progress.add_task("simulating", total=None)

            def on_progress(now: Done) -> None:
                nonlocal latest
                latest = now
                progress.update(task, completed=now.done, total=now.total)

            return sweep(runs, store, crew, on_progress)
    except KeyboardInterrupt:
        typer.echo(
            f"coresident: interrupted; {latest.done} of {latest.total} runs are done and kept in {lab.folder}. "
            "The same command goes on from there.",
            err=True,
        )
        raise


def _body(lab: Lab, swept: Swept, path: Path, table: list[Row]) -> dict[str, Any]:
    return {
        "lab": str(lab.file),
        "table": str(path),
        "runs": len(swept.results),
        "kept": swept.kept,
        "failed": swept.failed,
        "damaged": swept.damaged,
        "rows": table,
    }


def _show(lab: Lab, runs: tuple[Run, ...], swept: Swept, path: Path, table: list[Row]) -> None:
    console = screen()
    _compare(console, table)
    for line in failures(runs, swept.results):
        console.print(line, style="red", soft_wrap=True)
    for name in swept.damaged:
        console.print(f"Note: {name} was damaged; its run was done again.", style="yellow", soft_wrap=True)
    for line in notes(runs):
        console.print(line, style="yellow", soft_wrap=True)
    kept = f", {swept.kept} of them kept from before" if swept.kept else ""
    failed = f", {swept.failed} failed" if swept.failed else ""
    console.print(f"{len(swept.results)} runs{kept}{failed}. All figures: {path}", style="bold", soft_wrap=True)
    if lab.record:
        console.print(f"Traces of the runs: {lab.folder / 'traces'}", soft_wrap=True)


def _compare(console: Screen, table: list[Row]) -> None:
    """Blocks of one width: all with the 99th percentiles, where the terminal has room for them."""
    blocks = list(comparison(table))
    endless = console.options.update(max_width=10_000)
    wide = all(console.measure(block.wide, options=endless).maximum <= console.width for block in blocks)
    for block in blocks:
        console.print(block.title, style="dim", soft_wrap=True)
        console.print(block.wide if wide else block.narrow)
        for line in block.notes:
            console.print(line, style="yellow", soft_wrap=True)
        console.print()
