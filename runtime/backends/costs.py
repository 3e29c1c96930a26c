"""How long work takes on a modelled device: constant, linear, or interpolated between measured points.

Every form answers ``ns(size, context)``: whole nanoseconds for work of a ``size`` at a ``context``. What these are
depends on the kind of step, see :class:`~coresident.runtime.backends.device_model.StepTimes`. Integers all the way:
the answer is the same on every machine and is never negative. Coefficients are femtoseconds, since one token of
context may cost less than a nanosecond.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

import attrs

FEMTO = 1_000_000
Number: TypeAlias = int | float


class Cost(Protocol):
    """One form of step time."""

    def ns(self, size: int, context: int) -> int:
        """Nanoseconds of work of ``size`` at ``context``, both at least 0."""
        ...


def _not_negative(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name} is {value}: time is at least 0")


@attrs.frozen
class Linear:
    """``(fixed + size * unit + size * context * pair) / 10**6`` nanoseconds; all three are femtoseconds.

    A constant is ``fixed`` alone.
    """

    fixed: int = attrs.field(default=0, validator=_not_negative)
    unit: int = attrs.field(default=0, validator=_not_negative)
    pair: int = attrs.field(default=0, validator=_not_negative)

    @classmethod
    def of(cls, fixed_ns: Number = 0, unit_ns: Number = 0, pair_ns: Number = 0) -> Linear:
        """From nanoseconds, rounded to femtoseconds."""
        return cls(round(fixed_ns * FEMTO), round(unit_ns * FEMTO), round(pair_ns * FEMTO))

    def ns(self, size: int, context: int) -> int:
        return (self.fixed + size * (self.unit + context * self.pair)) // FEMTO


@attrs.frozen
class Table:
    """Measured points, ``times[i][j]`` nanoseconds for ``sizes[i]`` at ``contexts[j]``, and straight lines between.

    Between four points it is bilinear, rounded down. Below the first size or context the first one's time holds: a
    step smaller than any that was measured is not said to be faster. Above the last one the line through the last two
    goes on where it rises, or, with ``extend`` false, the last time holds. An axis of one point doesn't count. Both
    axes rise strictly.
    """

    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    times: tuple[tuple[int, ...], ...]
    extend: bool = True

    def __attrs_post_init__(self) -> None:
        for name, axis in (("sizes", self.sizes), ("contexts", self.contexts)):
            if not axis or axis[0] < 0 or any(high <= low for low, high in pairwise(axis)):
                raise ValueError(f"{name} are {list(axis)}: give at least one, from 0 up, each above the one before")
        if len(self.times) != len(self.sizes):
            raise ValueError(f"there are {len(self.times)} rows of times for {len(self.sizes)} sizes")
        for size, row in zip(self.sizes, self.times, strict=True):
            if len(row) != len(self.contexts):
                raise ValueError(f"size {size} has {len(row)} times for {len(self.contexts)} contexts")
            if min(row) < 0:
                raise ValueError(f"size {size} has a time of {min(row)}: time is at least 0")

    def ns(self, size: int, context: int) -> int:
        low, high, x, width = _place(self.sizes, size)
        left, right, y, height = _place(self.contexts, context)
        near, far = self.times[low], self.times[high]
        here = self._line(near[left], near[right], y, height)
        there = self._line(far[left], far[right], y, height)
        return self._line(here, there, x, width) // (width * height)

    def _line(self, here: int, there: int, x: int, width: int) -> int:
        """``width`` times the value at ``x`` of the line from ``here`` at 0 to ``there`` at ``width``."""
        if x > width and (not self.extend or there <= here):
            return there * width
        return here * (width - x) + there * x


def _place(axis: Sequence[int], value: int) -> tuple[int, int, int, int]:
    """The cell of a value: its two points, how far the value is behind the first, and how wide the cell is."""
    last = len(axis) - 1
    if not last:
        return 0, 0, 0, 1
    low = min(max(bisect_right(axis, value) - 1, 0), last - 1)
    return low, low + 1, max(value - axis[low], 0), axis[low + 1] - axis[low]
