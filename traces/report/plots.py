"""Plots by matplotlib, for papers and slides: latency, the device by class, the ledger, waits by arrival.

matplotlib is the extra ``plots`` and is imported when used; figures are drawn without its global state. The same runs
give the same bytes with one version of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ...actors.errors import InvalidRequest
from ..fields import CLASSES
from .charts import decade, decades, labelled_decades
from .gather import Run, time_axes
from .latency import METRICS
from .memory import PARTS
from .occupancy import LANES
from .output import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
COLOURS = {
    "decision": "#d0500a",
    "foreground": "#0072b2",
    "utility": "#008a64",
    "preparation": "#b5589a",
    "other": "#7a7f87",
}
"""The page's colours: they differ in brightness too, for those who see hues alike."""

_ABREAST = 4
_DASHES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
_MIB = 1024**2
_STYLE: Mapping[Any, Any] = {
    "svg.hashsalt": "coresident",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
# What a format writes of the moment of drawing is left out.
_METADATA: Mapping[str, Mapping[str, None]] = {"svg": {"Date": None}, "png": {"Software": None}}

_Draw: TypeAlias = Callable[["Figure", Sequence[Run]], bool]


def check_plots() -> None:
    """Raise ``InvalidRequest`` when matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InvalidRequest(
            f"plots need matplotlib, which can't be imported ({error}): install it with pip install 'coresident[plots]'"
        ) from error


def draw_plots(runs: Sequence[Run], folder: Path, form: str = "svg") -> list[Path]:
    """Write each plot that the runs have anything for into a folder, made where it is missing; their paths.

    Raises:
        InvalidRequest: a file or the folder can't be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"plots can't be written to {folder}: {error.strerror or error}; name a folder whose parent is there",
            file=str(folder),
        ) from error
    paths = []
    for name, draw in PLOTS.items():
        with rc_context(dict(_STYLE)):
            figure = Figure(layout="constrained")
            if draw(figure, runs):
                path = folder / f"{name}.{form}"
                with written(path, "a plot") as file:
                    figure.savefig(file, format=form, dpi=150, metadata=dict(_METADATA[form]))
                paths.append(path)
    return paths


def _latency(figure: Figure, runs: Sequence[Run]) -> bool:
    """A row per class, a column per time that requests have, a line per run."""
    from matplotlib.lines import Line2D

    rows = [name for name in CLASSES if any(metric.of(run, name).count for metric in METRICS for run in runs)]
    if not rows:
        return False
    figure.set_size_inches(3.0 * len(METRICS), 2.1 * len(rows) + 0.6)
    grid = figure.subplots(len(rows), len(METRICS), squeeze=False)
    for name, boxes in zip(rows, grid, strict=True):
        for metric, box in zip(METRICS, boxes, strict=True):
            curves = [metric.of(run, name).cumulative() for run in runs]
            if any(curves):
                _curves(box, COLOURS[name], curves)
                box.set_title(f"{name}: {metric.name}")
            else:
                box.set_axis_off()
    lines = [Line2D([], [], color="black", linestyle=_DASHES[index % len(_DASHES)]) for index in range(len(runs))]
    figure.legend(lines, [run.label for run in runs], loc="outside upper center", ncols=min(len(runs), _ABREAST))
    return True


def _curves(box: Axes, colour: str, curves: Sequence[Sequence[tuple[int, float]]]) -> None:
    """Cumulative shares over a logarithmic time; what took no time is at the left edge."""
    low, high = decades(value for curve in curves for value, _ in curve)
    for index, curve in enumerate(curves):
        if curve:
            times = [low, *(max(value, low) for value, _ in curve), high]
            shares = [0.0, *(share for _, share in curve), 1.0]
            box.step(times, shares, where="post", color=colour, linestyle=_DASHES[index % len(_DASHES)])
    box.set(xscale="log", xlim=(low, high), ylim=(0, 1.02))
    _label(box.xaxis, low, high, least=any(value < low for curve in curves for value, _ in curve))


def _label(axis: Axis, low: int, high: int, least: bool, wanted: int = 3) -> None:
    """Few ticks in units; ``least`` says that what is below ``low`` is drawn there."""
    from matplotlib.ticker import NullLocator

    ticks = labelled_decades(low, high, wanted)
    labels = [decade(each) for each in ticks]
    if least:
        labels[0] = f"≤ {labels[0]}"
    axis.set_ticks(ticks, labels=labels)
    axis.set_minor_locator(NullLocator())


def _device(figure: Figure, runs: Sequence[Run]) -> bool:
    """The share of the device's time by class, a box per run."""
    working = [run for run in runs if run.occupancy.count]
    boxes = _rows(figure, working)
    for run, span, box in zip(working, time_axes(working), boxes, strict=True):
        shares = run.occupancy.shares
        times = np.arange(run.statistics.span_ns // shares.width + 2) * shares.width / 1e9
        below = np.zeros(len(times))
        for lane in LANES:
            above = below.copy()
            for index, ns in shares.of(lane).items():
                above[index] += ns / shares.width
            box.fill_between(times, below, above, step="post", color=COLOURS[lane], label=lane, linewidth=0)
            below = above
        box.set(title=run.label, xlim=(0, span / 1e9), ylim=(0, 1), xlabel="s", ylabel="share of time")
    return _legend(figure, boxes[0]) if boxes else False


def _ledger(figure: Figure, runs: Sequence[Run]) -> bool:
    """Each part of the ledger against its limit, a row per run."""
    seen = [run for run in runs if run.device.partition]
    if not seen:
        return False
    figure.set_size_inches(3.6 * len(PARTS), 2.2 * len(seen))
    grid = figure.subplots(len(seen), len(PARTS), squeeze=False)
    for run, boxes in zip(seen, grid, strict=True):
        for part, box in zip(PARTS, boxes, strict=True):
            levels = run.levels.of(part.key, run.statistics.span_ns)
            times = [index * run.levels.width / 1e9 for index in range(len(levels))]
            box.fill_between(times, [level / _MIB for level in levels], step="post", alpha=0.7, linewidth=0)
            box.axhline(part.limit(run) / _MIB, color="black", linestyle="--", linewidth=1)
            box.set(title=f"{run.label}: {part.title}", xlabel="s", ylabel="MiB", ylim=(0, None))
            box.title.set_fontsize(8)
    return True


def _waits(figure: Figure, runs: Sequence[Run]) -> bool:
    """The longest wait of those that came about the same time, against the time that they came; on one scale."""
    waiting = [run for run in runs if run.waits.by_arrival.counted]
    classes = [name for name in CLASSES if any(run.waits.by_arrival.of(name) for run in waiting)]
    low, high = decades(ns for run in waiting for name in classes for ns in run.waits.by_arrival.of(name).values())
    boxes = _rows(figure, waiting)
    for run, box in zip(waiting, boxes, strict=True):
        series = run.waits.by_arrival
        for name in classes:
            times = [(index + 0.5) * series.width / 1e9 for index in series.of(name)]
            waits = [max(ns, low) for ns in series.of(name).values()]
            box.scatter(times, waits, s=9, color=COLOURS[name], label=name, clip_on=False)
        box.set(title=run.label, xlabel="arrival, s", ylabel="wait", yscale="log", ylim=(low, high))
        _label(box.yaxis, low, high, least=True, wanted=4)
    return _legend(figure, boxes[0]) if boxes else False


def _legend(figure: Figure, box: Axes) -> bool:
    """What a box shows, above all boxes."""
    handles, labels = box.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(1, len(labels)))
    return True


def _rows(figure: Figure, runs: Sequence[Run]) -> list[Axes]:
    """A box below the other for each run."""
    figure.set_size_inches(9, max(1, len(runs)) * 2.4)
    return [figure.add_subplot(len(runs), 1, row + 1) for row in range(len(runs))]


PLOTS: Mapping[str, _Draw] = {"latency": _latency, "device": _device, "ledger": _ledger, "waits": _waits}
