"""The limit on BLAS threads: one setting of the process, shared by all backends that hold it.

While anybody holds it, the smallest limit asked for is in force; the last to let go brings back what was there before.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import threadpoolctl  # type: ignore[import-untyped]


class _Shared:
    """Who holds which limit, and what was there before the first of them."""

    def __init__(self) -> None:
        # Reentrant, because a holder may be collected, and so let go, inside of another's call.
        self._lock = threading.RLock()
        self._held: dict[int, int] = {}
        self._before: threadpoolctl.threadpool_limits | None = None

    def hold(self, holder: int, threads: int) -> None:
        with self._lock:
            self._held[holder] = threads
            limits = self._apply()
            self._before = self._before or limits

    def release(self, holder: int) -> None:
        with self._lock:
            if self._held.pop(holder, None) is None or self._before is None:
                return
            if self._held:
                self._apply()
                return
            with _in_control():
                self._before.restore_original_limits()
            self._before = None

    def _apply(self) -> threadpoolctl.threadpool_limits:
        with _in_control():
            return threadpoolctl.threadpool_limits(limits=min(list(self._held.values())), user_api="blas")


@contextmanager
def _in_control() -> Iterator[None]:
    """Let this thread set OpenBLAS's limit.

    Since threadpoolctl 3.8 one thread is in control, and what others ask for is silently ignored.
    """
    controller = getattr(threadpoolctl, "OpenBLASController", None)
    clear = getattr(controller, "clear_controlling_thread", lambda force: None)
    clear(force=True)
    try:
        yield
    finally:
        clear(force=True)


_SHARED = _Shared()


class BlasLimit:
    """One holder's limit, given up at the latest when it is collected.

    Holding it twice, or letting go of what is not held, does nothing.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        weakref.finalize(self, _SHARED.release, id(self))

    def hold(self) -> None:
        """Limit BLAS from now on."""
        _SHARED.hold(id(self), self._threads)

    def release(self) -> None:
        """Give the limit up; others may still hold theirs."""
        _SHARED.release(id(self))
