"""Who waited longest, and for what."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..fields import CLASSES
from .charts import Chart, Layer, Tick, decade_ticks, decades, dots, place, time_ticks
from .gather import Run, time_axes
from .tables import Table, WordsRow, table_of
from .waits import Waiter
from .words import duration, listed, shown


def waits_table(runs: Sequence[Run]) -> Table | None:
    """The longest wait of each class, who waited, and who had the device meanwhile."""
    classes = [name for name in CLASSES if any(run.waits.worst(name) for run in runs)]
    rows: list[WordsRow] = []
    for name in classes:
        rows.append((name, _longest_wait(name)))
        if any(run.waits.never[name] for run in runs):
            rows.append((f"{name}, ended without the device", _never(name)))
    return table_of("the longest wait, and who had the device meanwhile", runs, rows) if rows else None


def wait_charts(runs: Sequence[Run]) -> list[Chart]:
    """The longest wait of those that came about the same time, by class, of each run that has any; on one scale."""
    waits = [(run, name, run.waits.by_arrival.of(name)) for run in runs for name in CLASSES]
    values = [ns for *_, series in waits for ns in series.values()]
    if not values:
        return []
    low, high = decades(values)
    waiting = [run for run in runs if run.waits.by_arrival.counted]
    return [_waits(run, low, high, span) for run, span in zip(waiting, time_axes(waiting), strict=True)]


def _waits(run: Run, low: int, high: int, span: int) -> Chart:
    width = run.waits.by_arrival.width
    layers = []
    for name in run.waits.by_arrival.counted:
        points = (
            ((index + 0.5) * width / max(1, span), place(math.log10(max(ns, low)), math.log10(low), math.log10(high)))
            for index, ns in run.waits.by_arrival.of(name).items()
        )
        layers.append(Layer(f"{name} dot", dots((min(1.0, x), y) for x, y in points)))
    worst = [entry[0] for name in CLASSES if (entry := run.waits.worst(name))]
    told = listed([f"{each.work_class} {duration(each.ns)}" for each in worst])
    summary = f"{run.label}: waits by time of arrival. The longest: {told}."
    ticks = decade_ticks(low, high, wanted=4)
    ticks = (Tick(0.0, f"≤ {ticks[0].label}"), *ticks[1:])
    return Chart(run.label, summary, tuple(layers), time_ticks(span), ticks, "waits")


def _longest_wait(name: str) -> Callable[[Run], str]:
    def words(run: Run) -> str:
        worst = run.waits.worst(name)
        if not worst:
            return "-"
        others = listed([f"{shown(each.request)} {duration(each.ns)}" for each in worst[1:]])
        return waiter_words(worst[0]) + (f". Next: {others}" if others else "")

    return words


def waiter_words(waiter: Waiter) -> str:
    """``34 ms: turn9, which came at 12.10 s; meanwhile foreground 34 ms``."""
    text = f"{duration(waiter.ns)}: {shown(waiter.request)}, which came at {duration(waiter.arrived)}"
    if not waiter.served:
        text += " and never had the device"
    meanwhile = listed([f"{lane} {duration(ns)}" for lane, ns in waiter.meanwhile])
    return f"{text}; meanwhile {meanwhile}" if meanwhile else text


def _never(name: str) -> Callable[[Run], str]:
    return lambda run: f"{run.waits.never[name]:,}"
