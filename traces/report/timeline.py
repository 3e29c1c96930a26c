"""Who had the device when: a lane per class, drawn grant by grant where they are few, and by share of time otherwise.

Above the lanes is the share of the device's time that each class had. Runs of about the same length have one time axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from .bins import Bins
from .charts import Chart, Layer, Rectangle, Tick, bars, dots, time_ticks
from .gather import Run, time_axes
from .occupancy import LANES, Slice
from .words import count, duration, listed, share, shown

_NAMED = 3


@attrs.frozen
class Lane:
    """A lane's grants, and marks at those that were told to give way and at those that were suspended."""

    name: str
    path: str
    told: str
    suspended: str


@attrs.frozen
class Timeline:
    """A run's timeline. ``slices`` are for looking at one grant after another; none where they were too many."""

    label: str
    summary: str
    shares: Chart
    lanes: tuple[Lane, ...]
    x: tuple[Tick, ...]
    slices: tuple[tuple[Any, ...], ...]
    span_ns: int


def timelines(runs: Sequence[Run]) -> list[Timeline]:
    """Those of the runs in which the device did anything, on one time axis."""
    working = [run for run in runs if run.occupancy.count]
    lanes = [lane for lane in LANES if any(run.occupancy.shares.of(lane) for run in working)]
    return [_timeline(run, lanes, span) for run, span in zip(working, time_axes(working), strict=True)]


def _share_layers(shares: Bins, lanes: Sequence[str], span_ns: int) -> list[tuple[str, list[Rectangle]]]:
    """Each lane's rectangles ``(left, right, low, high)``, from 0 to 1, on top of those of the lanes before it."""
    below: dict[int, float] = {}
    layers = []
    for lane in lanes:
        stacked: list[Rectangle] = []
        for index, ns in shares.of(lane).items():
            left, right = index * shares.width, min((index + 1) * shares.width, span_ns)
            low = below.get(index, 0.0)
            below[index] = high = min(1.0, low + ns / max(1, right - left))
            stacked.append((left / span_ns, right / span_ns, low, high))
        layers.append((lane, stacked))
    return layers


def _timeline(run: Run, lanes: Sequence[str], span: int) -> Timeline:
    occupancy, ticks = run.occupancy, time_ticks(span, wanted=6)
    shares = Chart(
        title="share of the device's time",
        summary=f"{run.label}: share of the device's time by class. {_had(run)}",
        layers=tuple(Layer(lane, bars(each)) for lane, each in _share_layers(occupancy.shares, lanes, span)),
        x=(),
        y=(Tick(0.0, "0 %"), Tick(100.0, "100 %")),
    )
    slices = occupancy.slices
    drawn = [_coarse(run, lane, span) if slices is None else _exact(lane, slices, span) for lane in lanes]
    data = tuple(_row(each) for each in slices or ())
    return Timeline(run.label, _summary(run), shares, tuple(drawn), ticks, data, span)


def _exact(lane: str, slices: Sequence[Slice], span: int) -> Lane:
    own = [each for each in slices if each.lane == lane]
    return Lane(
        name=lane,
        path=bars((each.at / span, (each.at + each.ns) / span, 0.0, 1.0) for each in own),
        told=dots(((each.at + each.ns) / span, 0.5) for each in own if each.told and each.outcome != "suspended"),
        suspended=dots(((each.at + each.ns) / span, 0.5) for each in own if each.outcome == "suspended"),
    )


def _coarse(run: Run, lane: str, span: int) -> Lane:
    """The height is the lane's share of the bin's time."""
    shares, yields = run.occupancy.shares, run.occupancy.yields
    parts = [
        (index * shares.width / span, min((index + 1) * shares.width, span) / span, 0.0, min(1.0, ns / shares.width))
        for index, ns in shares.of(lane).items()
    ]
    told = (((index + 0.5) * yields.width / span, 0.9) for index in yields.of(lane))
    return Lane(lane, bars(parts), dots(told), "")


def _row(each: Slice) -> tuple[Any, ...]:
    """What the page says of a grant: lane, start and length in nanoseconds, and words."""
    requests = [shown(request) for request in each.requests[:_NAMED]]
    if len(each.requests) > _NAMED:
        requests.append(f"{len(each.requests) - _NAMED} more")
    begun = "resumed " if each.resumed else ""
    what = f"{begun}{each.kind}{f' for {listed(requests)}' if requests else ''}"
    return LANES.index(each.lane), each.at, each.ns, what, each.outcome, each.waited_ns, int(each.told)


def _had(run: Run) -> str:
    shares = run.occupancy.held(run.statistics.span_ns)
    total = max(1, run.statistics.span_ns)
    parts = [f"{lane} {share(ns / total)}" for lane, ns in zip(LANES, shares, strict=True) if ns]
    return f"Of {duration(total)} the device was given to {listed(parts)}." if parts else ""


def _summary(run: Run) -> str:
    occupancy = run.occupancy
    text = f"{count(occupancy.count, 'grant')}. {_had(run)}"
    if occupancy.slices is None:
        text += (
            " These are too many to draw one by one: a lane's height is its share of each "
            f"{duration(occupancy.shares.width)}; --perfetto writes every grant."
        )
    return text
