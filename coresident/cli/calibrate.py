"""``coresident calibrate``: a device model out of recordings, and how well it predicts what it was not fitted to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as Shown

from ..runtime.backends.costs import Linear, Table
from ..runtime.backends.device_text import device_text
from ..traces.calibrate.error import FLOOR_NS
from ..traces.calibrate.run import ADVICE, GOAL, Calibration
from ..traces.calibrate.run import calibrate as fitted
from ..traces.report.output import check_output, written
from . import options
from .wording import duration, print_json, screen, table_of

DEVICE_MODEL = "the device model"
_NAMES = {
    "queue_wait": "queue wait",
    "first_token": "first token",
    "token_gap": "gap of tokens",
    "decision": "decision",
}


def calibrate(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Recordings of one device and model.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the model here, in place of a file of that name."),
    ] = None,
    holdout: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the traces, or of one trace's requests: judged on, not fitted.")
    ] = 0.25,
    as_json: options.AsJson = False,
) -> None:
    """Fit a device model to recordings of a live host, and judge it on requests that were held out.

    The model is a TOML file for 'device.model' of a configuration. With one trace, its last requests are held out; with
    several, the last traces.
    """
    if output is not None:
        check_output(output, traces, DEVICE_MODEL)
    calibration = fitted(traces, holdout)
    if output is not None:
        with written(output, DEVICE_MODEL) as file:
            file.write(device_text(calibration.device).encode())
    if as_json:
        print_json({**calibration.as_dict(), "output": None if output is None else str(output)})
    else:
        show(calibration, screen(), output)


def show(calibration: Calibration, console: Console, output: Path | None) -> None:
    """The fit kind by kind, the errors metric by metric, and what is a guess."""
    device = calibration.device
    console.print(device.label, style="bold", soft_wrap=True)
    for table in (_fits(calibration), _errors(calibration)):
        console.print()
        console.print(table)
    console.print()
    gap = f"gap between steps {duration(device.gap_ns)}, {device.segments} segments a chunk"
    console.print(f"Host: {gap}.", soft_wrap=True)
    for guess in calibration.guesses:
        console.print(f"A guess: {guess}.", style="yellow", soft_wrap=True)
    for line, style in _verdict(calibration):
        console.print(line, style=style, soft_wrap=True)
    if output is not None:
        console.print(f"Written to {output}.", soft_wrap=True)


def _fits(calibration: Calibration) -> Shown:
    table = table_of("step times", "kind", ">recorded", ">fixed", ">each", ">x context", ">misses p50", ">p90")
    for fit in calibration.fits:
        table.add_row(fit.kind, str(fit.samples), *_parts(fit.cost), _share(fit.median), _share(fit.p90))
    return table


def _parts(cost: Linear | Table) -> tuple[str, str, str]:
    """A line's parts; of a table, the time of its first and last size at a context of 0."""
    if isinstance(cost, Linear):
        return _part(cost.fixed), _part(cost.unit), _part(cost.pair)
    ends = (f"{size}: {duration(times[0])}" for size, times in zip(cost.sizes, cost.times, strict=True))
    first, *_, last = ends
    return first, last, "table"


def _part(femto: int) -> str:
    """Nanoseconds with what matters of them; a part that is not there is left blank."""
    if femto and femto < 10**9:
        return f"{femto / 1e6:.3g} ns"
    return duration(round(femto / 1e6)) if femto else ""


def _errors(calibration: Calibration) -> Shown:
    title = f"errors on {calibration.held_out} held-out requests"
    table = table_of(title, "metric", ">values", ">p50", ">p90", ">p50 in time", ">recorded p50", ">predicted p50")
    for metric, error in calibration.errors.items():
        above = metric in calibration.above_goal
        table.add_row(
            _NAMES[metric],
            str(error.count),
            _share(error.median),
            _share(error.p90),
            duration(error.median_ns),
            duration(error.recorded_ns),
            duration(error.predicted_ns),
            style="bold red" if above else None,
        )
    return table


def _verdict(calibration: Calibration) -> list[tuple[str, str | None]]:
    judged = [name for name, error in calibration.errors.items() if error.count]
    missing = [_NAMES[name] for name in calibration.errors if name not in judged]
    lines: list[tuple[str, str | None]] = [
        (f"Times under {duration(FLOOR_NS)} count as that much in relative errors.", None)
    ]
    if missing:
        lines.append((f"Not judged, since the held-out requests have none: {', '.join(missing)}.", "yellow"))
    if calibration.above_goal:
        names = ", ".join(_NAMES[name] for name in calibration.above_goal)
        lines.append((f"The median error is above {GOAL:.0%} for {names}: don't trust predictions of it.", "bold red"))
        lines.append((f"What helps: {ADVICE}.", None))
    elif judged:
        lines.append((f"The median error is at most {GOAL:.0%} for every metric that was judged.", "bold green"))
    return lines


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
