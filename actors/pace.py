"""How long device work takes, learned from what was measured.

An exponentially weighted mean of device time per token (or per step) by step kind; 0 until something was measured.
"""

from __future__ import annotations

from .work import StepKind

_WEIGHT = 4


class Pace:
    """Integer nanoseconds per unit of work, by kind."""

    def __init__(self) -> None:
        self._mean: dict[StepKind, int] = {}

    def learn(self, kind: StepKind, units: int, device_ns: int) -> None:
        """Take one measurement: ``units`` tokens (or steps) in ``device_ns``."""
        if units <= 0:
            return
        each = device_ns // units
        known = self._mean.get(kind)
        self._mean[kind] = each if known is None else known + (each - known) // _WEIGHT

    def estimate(self, kind: StepKind, units: int) -> int:
        """Expected nanoseconds for ``units``; 0 when nothing was measured yet."""
        return self._mean.get(kind, 0) * units
