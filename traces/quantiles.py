"""Exact percentiles of integers, by nearest rank."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

_PERMILLE = (500, 950, 990)


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
