"""Transient memory of steps: refused before a graph is built, and measured after every segment.

MLX counts the bytes of all live arrays of the process, and their highest sum since a reset. What a step takes is the
difference to what was there before it; a suspended step takes what it held to its next segment, whatever ran between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from ....actors.errors import BackendFault, BudgetExceeded


class StepMemory:
    """The workspace of one step of ``charge`` bytes."""

    def __init__(self, charge: int) -> None:
        self.charge = charge
        self._held = 0
        self._most = 0
        self._open = True

    def require(self, need: int) -> None:
        """Refuse a step that may need more than its charge, before anything of it is built.

        Raises:
            BudgetExceeded: carries the bytes needed and those charged.
        """
        if not self._open:
            raise BackendFault("workspace is closed: a step went on after its end")
        if need > self.charge:
            raise BudgetExceeded("step workspace", need, self.charge, "charge the step for its real shape")

    @contextmanager
    def metered(self) -> Iterator[None]:
        """Count what is allocated inside as this step's."""
        before = mx.get_active_memory() - self._held
        mx.reset_peak_memory()
        try:
            yield
        finally:
            active = mx.get_active_memory()
            # Resetting sets the peak to zero, and only an allocation raises it.
            self._most = max(self._most, max(mx.get_peak_memory(), active) - before)
            self._held = active - before

    def peak(self) -> int:
        """Most bytes in use at once so far."""
        return self._most

    def close(self) -> None:
        """No step may use it any more; closing again does nothing."""
        self._open = False
