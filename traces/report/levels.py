"""Memory over time: what of the partition was reserved, retained for prefixes, and charged as workspace."""

from __future__ import annotations

from ..events_schedule import Drop, Grant, LedgerState, Retain, Step
from ..format import Event
from .bins import BINS, Bins, latest

RESERVED, RETAINED, WORKSPACE = KEYS = ("reserved", "retained", "workspace")


class Levels:
    """Takes the events of a run in order; values are bytes."""

    def __init__(self, bins: int = BINS) -> None:
        self._peaks = Bins(max, bins)
        self._ends = Bins(latest, bins)
        self._now = dict.fromkeys(KEYS, 0)
        self._charges: dict[str, int] = {}

    @property
    def width(self) -> int:
        """Nanoseconds of a bin."""
        return self._peaks.width

    def add(self, event: Event) -> None:
        """Count one event. A suspended step stays charged."""
        match event:
            case LedgerState():
                self._set(RESERVED, event.at, event.reserved)
            case Retain():
                self._set(RETAINED, event.at, self._now[RETAINED] + event.bytes)
            case Drop():
                self._set(RETAINED, event.at, self._now[RETAINED] - event.bytes)
            case Grant(resumed=False):
                self._charges[event.step] = event.charge
                self._set(WORKSPACE, event.at, self._now[WORKSPACE] + event.charge)
            case Step(step=step, outcome=outcome) if outcome != "suspended" and step in self._charges:
                self._set(WORKSPACE, event.at, self._now[WORKSPACE] - self._charges.pop(step))
            case _:
                pass

    def of(self, key: str, until: int) -> list[int]:
        """The peak of every bin up to a time."""
        peaks, before = self._peaks.of(key), 0
        levels = []
        for index, end in enumerate(self._ends.filled(key, until // self.width + 1)):
            levels.append(peaks.get(index, before))
            before = end
        return levels

    def now(self, key: str) -> int:
        """What stands."""
        return self._now[key]

    def peak(self, key: str) -> int:
        """The most that there ever was."""
        return max(self._peaks.of(key).values(), default=0)

    def _set(self, key: str, at: int, value: int) -> None:
        """A bin's peak is at least what stood when it began."""
        self._peaks.add(key, at, max(value, self._now[key]))
        self._ends.add(key, at, value)
        self._now[key] = value
