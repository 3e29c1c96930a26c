"""How values are distributed, in bounded memory.

Values are kept as they are while there are few different ones. Beyond that all keep as many of their leading bits as
needed to stay few, which moves a value by less than one part in ``2 ** (bits - 1)``. What is kept does not depend on
the order of the values.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

DISTINCT = 2048
_BITS = 63


class Distribution:
    """Takes integers from 0 on."""

    def __init__(self, distinct: int = DISTINCT) -> None:
        self._distinct = distinct
        self._bits = _BITS
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.max = 0

    def add(self, value: int, times: int = 1) -> None:
        """Count a value."""
        self.count += times
        self.max = max(self.max, value)
        self._counts[_leading(value, self._bits)] += times
        while len(self._counts) > self._distinct:
            self._bits -= 1
            fewer: Counter[int] = Counter()
            for kept, count in self._counts.items():
                fewer[_leading(kept, self._bits)] += count
            self._counts = fewer

    def percentile(self, permille: int) -> int | None:
        """The nearest-rank percentile, as exact as values are kept; ``None`` of nothing."""
        rank = max(1, -(-permille * self.count // 1000))
        return next((value for value, reached in self._cumulative() if reached >= rank), None)

    def cumulative(self) -> list[tuple[int, float]]:
        """Every kept value, in order, with the share of values that are at most as large."""
        return [(value, reached / self.count) for value, reached in self._cumulative()]

    def _cumulative(self) -> list[tuple[int, int]]:
        ordered = sorted(self._counts.items())
        return list(zip((value for value, _ in ordered), accumulate(count for _, count in ordered), strict=True))


def _leading(value: int, bits: int) -> int:
    """The value with all but its first ``bits`` bits at zero."""
    drop = max(0, value.bit_length() - bits)
    return value >> drop << drop
