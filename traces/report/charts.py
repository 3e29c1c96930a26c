"""Charts as data: paths in a stretched box, and ticks in percent of it that the page sets as text.

A chart's box is ``WIDTH`` by ``HEIGHT`` units, whatever its size on the screen. Only lines and areas are in it, so
that text keeps its size in a narrow window and is text for a reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import attrs

WIDTH = 1000
HEIGHT = 100
Rectangle: TypeAlias = tuple[float, float, float, float]
_UNITS = ((3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_NICE = (1, 2, 5, 10)


@attrs.frozen
class Tick:
    """A label at a place, in percent from the left or from the bottom."""

    at: float
    label: str


@attrs.frozen
class Layer:
    """A path of the box. ``css`` says what it is (``decision area``), ``dash`` which run's it is, from 0 on."""

    css: str
    path: str
    dash: int = 0


@attrs.frozen
class Chart:
    """``summary`` says in words what there is to see."""

    title: str
    summary: str
    layers: tuple[Layer, ...]
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    css: str = ""


def place(value: float, low: float, high: float) -> float:
    """Where a value is between two, from 0 to 1."""
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


def number(value: float) -> str:
    """A coordinate, as short as a tenth of a unit needs."""
    return f"{value:.1f}".removesuffix(".0")


def bars(values: Iterable[Rectangle]) -> str:
    """Rectangles ``(left, right, low, high)``, each from 0 to 1, as one path."""
    parts = []
    for left, right, low, high in values:
        x, width = left * WIDTH, (right - left) * WIDTH
        y, height = (1 - high) * HEIGHT, (high - low) * HEIGHT
        parts.append(f"M{x:.2f} {number(y)}h{width:.2f}v{number(height)}h{-width:.2f}z")
    return "".join(parts)


def dots(points: Iterable[tuple[float, float]]) -> str:
    """Points as strokes of no length: their round caps keep their shape in a stretched box."""
    return "".join(f"M{x * WIDTH:.2f} {number((1 - y) * HEIGHT)}h0" for x, y in points)


def steps(points: Iterable[tuple[float, float]], area: bool = False, grid: int = 1) -> str:
    """A line that goes to each point's left edge and up or down there, up to the right; ``area`` fills below.

    Points less than ``grid`` units apart become one, at the height of the last.
    """
    heights: dict[int, str] = {}
    for x, y in points:
        heights[round(x * WIDTH / grid) * grid] = number((1 - y) * HEIGHT)
    if not heights:
        return ""
    (first, height), *others = heights.items()
    parts = [f"M{first} {HEIGHT}V{height}" if area else f"M{first} {height}"]
    for x, here in others:
        if here != height:
            parts.append(f"H{x}V{here}")
        height = here
    return "".join(parts) + f"H{WIDTH}" + (f"V{HEIGHT}Z" if area else "")


def time_ticks(span_ns: int, wanted: int = 4) -> tuple[Tick, ...]:
    """Round times from 0 on, in the unit that fits."""
    if span_ns <= 0:
        return (Tick(0.0, "0 s"),)
    unit, name = next(((ns, name) for ns, name in _UNITS if span_ns >= 2 * ns), _UNITS[-1])
    step = _nice(span_ns / unit / wanted) * unit
    return tuple(Tick(at / span_ns * 100, f"{at / unit:g} {name}") for at in _until(step, span_ns))


def decade_ticks(low: int, high: int, wanted: int = 3) -> tuple[Tick, ...]:
    """Where :func:`labelled_decades` are between ``low`` and ``high``."""
    first, last = math.log10(low), math.log10(high)
    return tuple(
        Tick((math.log10(each) - first) / (last - first) * 100, decade(each))
        for each in labelled_decades(low, high, wanted)
    )


def labelled_decades(low: int, high: int, wanted: int = 3) -> list[int]:
    """Powers of ten of nanoseconds from ``low`` to ``high``, both of them such: at most one more than ``wanted``."""
    first, last = round(math.log10(low)), round(math.log10(high))
    every = max(1, -(-(last - first) // wanted))
    return [10**each for each in range(first, last + 1, every)]


def decade(ns: int) -> str:
    """A power of ten in the unit that fits."""
    unit, name = next(((unit, name) for unit, name in _UNITS[2:] if ns >= unit), (1, "ns"))
    return f"{ns // unit:,} {name}"


def decades(values: Iterable[int]) -> tuple[int, int]:
    """The powers of ten around all values but 0; at least one decade."""
    some = [value for value in values if value > 0] or [10**6]
    low = 10 ** (len(str(min(some))) - 1)
    high = 10 ** len(str(max(some) - 1)) if max(some) > 1 else 10
    return low, max(high, low * 10)


def _nice(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next((factor * power for factor in _NICE if factor * power >= least * 0.999), 10 * power)


def _until(step: float, last: float) -> Iterable[float]:
    return (index * step for index in range(int(last / step + 1e-9) + 1))
