"""``coresident report``: one page that says in a minute what runs came to, and a timeline and plots of them."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..actors.errors import InvalidRequest
from ..traces.report.gather import Run, read_runs
from ..traces.report.output import check_output, written
from ..traces.report.perfetto import Timeline
from .wording import screen

_EVERY = 4096
PAGE, TIMELINE = "the page", "the timeline"


class PlotFormat(StrEnum):
    """What plots are drawn as."""

    SVG = "svg"
    PNG = "png"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Traces of runs, live, replayed or simulated.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="PAGE", help="Write the page here.")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="What the page is headed with.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a timeline for Perfetto (Trace Event Format) here.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw plots into this folder; needs the extra 'plots'.")
    ] = None,
    form: Annotated[PlotFormat, typer.Option("--format", help="What plots are drawn as.")] = PlotFormat.SVG,
) -> None:
    """Compare runs in one page: per class, over time, memory, waste, fairness and reuse.

    The page has everything in it: it opens from a file, without network. Nothing is written when a trace is not whole.
    """
    if output is None and perfetto is None and plots is None:
        raise InvalidRequest("nothing is to be written: name a page with -o, or --perfetto FILE, or --plots DIR")
    _check(runs, output, perfetto, plots)
    made: list[Path] = []
    with ExitStack() as stack:
        timeline = None
        if perfetto is not None:
            timeline = Timeline(stack.enter_context(written(perfetto, TIMELINE)))
            made.append(perfetto)
        gathered = _read(runs, timeline)
        if timeline is not None:
            timeline.close()
        if output is not None:
            from ..traces.report.page import render

            page = render(gathered, title).encode()
            stack.enter_context(written(output, PAGE)).write(page)
            made.insert(0, output)
    if plots is not None:
        from ..traces.report.plots import draw_plots

        made += draw_plots(gathered, plots, form)
    console = screen()
    for path in made:
        console.print(f"wrote {path}", soft_wrap=True)


def _check(runs: list[Path], output: Path | None, perfetto: Path | None, plots: Path | None) -> None:
    """What can be known before a long trace is read."""
    if output is not None:
        check_output(output, runs, PAGE)
    if perfetto is not None:
        check_output(perfetto, runs, TIMELINE)
        if output is not None and output.absolute() == perfetto.absolute():
            raise InvalidRequest(f"the page and the timeline are both to be {output}: name two files")
    if plots is not None:
        from ..traces.report.plots import check_plots

        check_plots()


def _read(runs: list[Path], timeline: Timeline | None) -> list[Run]:
    """The count of events is on stderr, and only on a terminal."""
    bar = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,} events read"), TimeElapsedColumn())
    with Progress(*columns, console=bar, transient=True, disable=not bar.is_terminal) as progress:
        task = progress.add_task("reading", total=None)
        seen = 0

        def on_event() -> None:
            nonlocal seen
            seen += 1
            if seen % _EVERY == 0:
                progress.update(task, completed=seen)

        return read_runs(runs, timeline, on_event)
