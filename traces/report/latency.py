"""How long things took, class by class: cumulative distributions of all runs in one box."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from ..fields import CLASSES
from .charts import Chart, Layer, Tick, decade_ticks, decades, place, steps
from .distribution import Distribution
from .gather import Run
from .words import duration

SHARES = (Tick(0.0, "0 %"), Tick(50.0, "50 %"), Tick(100.0, "100 %"))


@attrs.frozen
class Metric:
    """A time that requests have; ``of`` gives it by class."""

    name: str
    field: str

    def of(self, run: Run, work_class: str) -> Distribution:
        """Its distribution; an empty one where nothing of the class has it."""
        found: Mapping[str, Distribution] = getattr(run.waits, self.field)
        return found.get(work_class) or Distribution()


WAIT = Metric("queue wait", "waits")
FIRST = Metric("time to first token", "firsts")
GAP = Metric("gap between tokens", "gaps")
LATENCY = Metric("arrival to end", "latencies")
METRICS = (WAIT, FIRST, GAP, LATENCY)


def latency_charts(runs: Sequence[Run]) -> list[tuple[str, list[Chart]]]:
    """Each class with the charts of what its requests have."""
    found = []
    for work_class in CLASSES:
        drawn = [chart for metric in METRICS if (chart := _chart(metric, work_class, runs)) is not None]
        if drawn:
            found.append((work_class, drawn))
    return found


def _chart(metric: Metric, work_class: str, runs: Sequence[Run]) -> Chart | None:
    """The share of a class that was at least as fast, over a logarithmic time; 0 is at the left edge."""
    distributions = [metric.of(run, work_class) for run in runs]
    curves = [distribution.cumulative() for distribution in distributions]
    values = [value for curve in curves for value, _ in curve]
    if not values:
        return None
    low, high = decades(values)
    layers = [
        Layer(f"{work_class} line", steps(_logarithmic(curve, low, high), grid=2), index)
        for index, curve in enumerate(curves)
        if curve
    ]
    ticks = decade_ticks(low, high)
    if min(values) < low:
        ticks = (Tick(0.0, f"≤ {ticks[0].label}"), *ticks[1:])
    told = "; ".join(
        f"{run.label}: half within {duration(each.percentile(500))}, 99 % within {duration(each.percentile(990))}"
        for run, each in zip(runs, distributions, strict=True)
        if each.count
    )
    return Chart(metric.name, f"{work_class}, {metric.name}. {told}.", tuple(layers), ticks, SHARES, "cdf")


def _logarithmic(curve: Sequence[tuple[int, float]], low: int, high: int) -> list[tuple[float, float]]:
    ends = math.log10(low), math.log10(high)
    points = [(place(math.log10(max(value, low)), *ends), reached) for value, reached in curve]
    return [(0.0, 0.0), *points]
