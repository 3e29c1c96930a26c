"""Percentiles of integers, by nearest rank: exact up to a million values, in bins beyond.

A bin holds values that share their highest ten bits, so it is at most 1/512 of its values wide. A run of any length is
thus summed up in bounded memory, and in the same way wherever and in whatever order its values come.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable

import attrs

_PERMILLE = (500, 950, 990)
_BITS = 10


@attrs.frozen
class Spread:
    """Counts and nearest-rank percentiles of integer nanoseconds (or other integers).

    The ``q`` percentile is the smallest value that at least ``q`` percent of all values do not exceed: always one
    that occurred. ``None`` where there is no value. ``total`` is their sum.
    """

    count: int = 0
    total: int = 0
    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    max: int | None = None

    @classmethod
    def of(cls, values: Iterable[int]) -> Spread:
        """The spread of all values, sorted once."""
        ordered = sorted(values)
        if not ordered:
            return cls()
        count = len(ordered)
        p50, p95, p99 = (ordered[max(1, -(-permille * count // 1000)) - 1] for permille in _PERMILLE)
        return cls(count, sum(ordered), p50, p95, p99, ordered[-1])


class Samples:
    """Values of one kind: up to ``exact`` of them as they are (8 bytes each), all in bins once there are more."""

    def __init__(self, exact: int = 2**20) -> None:
        self._exact = exact
        self._values = array("q")
        self._bins: Counter[int] = Counter()
        self._count = self._total = self._max = 0

    def append(self, value: int) -> None:
        """Take one value."""
        self._values.append(value)
        if len(self._values) > self._exact:
            self._fold()

    def extend(self, values: Iterable[int]) -> None:
        """Take several values."""
        self._values.extend(values)
        if len(self._values) > self._exact:
            self._fold()

    def spread(self) -> Spread:
        """Their spread; of values in bins, percentiles are the least that their bins can hold."""
        if not self._bins:
            return Spread.of(self._values)
        self._fold()
        ranks = [max(1, -(-permille * self._count // 1000)) for permille in _PERMILLE]
        found: list[int] = []
        seen = 0
        for least, count in sorted(self._bins.items()):
            seen += count
            while len(found) < len(ranks) and ranks[len(found)] <= seen:
                found.append(least)
        p50, p95, p99 = found
        return Spread(self._count, self._total, p50, p95, p99, self._max)

    def _fold(self) -> None:
        """Put what is held into bins, and forget it."""
        self._count += len(self._values)
        self._total += sum(self._values)
        self._max = max(self._max, max(self._values, default=0))
        self._bins.update(map(_least_of_bin, self._values))
        del self._values[:]


def _least_of_bin(value: int) -> int:
    """The least value with the same sign and the same ten highest bits."""
    shift = max(0, value.bit_length() - _BITS)
    return value >> shift << shift
