"""A dictionary that remembers what was put into it lately, so that an import of any length takes the same memory."""

from __future__ import annotations

from typing import Generic, TypeVar

_T = TypeVar("_T")
REMEMBERED = 65_536


class Recent(Generic[_T]):
    """The latest ``size`` names and their values."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._values: dict[str, _T] = {}

    def put(self, name: str, value: _T) -> None:
        """Remember a name, as the latest one; the oldest is forgotten for it."""
        self._values.pop(name, None)
        self._values[name] = value
        if len(self._values) > self._size:
            del self._values[next(iter(self._values))]

    def get(self, name: str, default: _T) -> _T:
        """The value of a name."""
        return self._values.get(name, default)
