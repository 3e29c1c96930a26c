"""A backend that counts the segments of another one as they end, and otherwise changes nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any


class CountingBackend:
    """``segments`` is the number of segments of prefill, decode and decision work that have ended."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.segments = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prefill(self, *args: Any) -> Generator[Any, None, Any]:
        return self._counted(self._inner.prefill(*args), ends_in_segment=True)

    def score(self, *args: Any) -> Generator[Any, None, Any]:
        return self._counted(self._inner.score(*args), ends_in_segment=True)

    def decode(self, *args: Any) -> Generator[Any, None, Any]:
        return self._counted(self._inner.decode(*args), ends_in_segment=False)

    def _counted(self, segments: Generator[Any, None, Any], ends_in_segment: bool) -> Generator[Any, None, Any]:
        while True:
            try:
                segment = next(segments)
            except StopIteration as end:
                self.segments += ends_in_segment
                return end.value
            self.segments += 1
            yield segment
