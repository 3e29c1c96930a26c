"""Series of bounded size: bins of time whose width doubles as a run goes on.

The same events give the same bins whatever else happens, and a longer run gets wider bins instead of more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

BINS = 512
_FIRST_WIDTH = 1_000_000


def total(earlier: int, later: int) -> int:
    """Values of a bin add up."""
    return earlier + later


def latest(_: int, later: int) -> int:
    """The last value of a bin stands."""
    return later


class Bins:
    """Integers by key and bin of ``width`` nanoseconds from time 0, at most ``most`` bins.

    ``combine`` makes one value of an earlier and a later one: :func:`total`, :func:`latest` or ``max``.
    """

    def __init__(self, combine: Callable[[int, int], int], most: int = BINS, width: int = _FIRST_WIDTH) -> None:
        self._combine = combine
        self._most = most
        self._series: dict[str, dict[int, int]] = {}
        self.width = width

    def add(self, key: str, at: int, value: int) -> None:
        """Count a value at a time; where the latest is to stand, times must not go back."""
        self._reach(at)
        self._put(self._series.setdefault(key, {}), at // self.width, value)

    def add_span(self, key: str, begin: int, end: int, scale: int = 1) -> None:
        """Count the nanoseconds of ``begin`` to ``end``, each in the bin where it is."""
        if end <= begin:
            return
        self._reach(end - 1)
        series = self._series.setdefault(key, {})
        for index in range(begin // self.width, (end - 1) // self.width + 1):
            inside = min(end, (index + 1) * self.width) - max(begin, index * self.width)
            self._put(series, index, inside * scale)

    @property
    def counted(self) -> list[str]:
        """The keys that have any."""
        return sorted(self._series)

    def of(self, key: str) -> dict[int, int]:
        """Values by bin, in order; a bin without any is left out."""
        return self._series.get(key, {})

    def filled(self, key: str, count: int) -> Iterator[int]:
        """Values of the first ``count`` bins, the one before standing for a bin without any."""
        series, value = self.of(key), 0
        for index in range(count):
            value = series.get(index, value)
            yield value

    def _put(self, series: dict[int, int], index: int, value: int) -> None:
        series[index] = self._combine(series[index], value) if index in series else value

    def _reach(self, at: int) -> None:
        while at >= self.width * self._most:
            self.width *= 2
            for key, series in self._series.items():
                wider: dict[int, int] = {}
                for index, value in sorted(series.items()):
                    self._put(wider, index // 2, value)
                self._series[key] = wider
