"""Values out of a device file, each checked as it is taken, with its key in every error."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from ..sizes import parse_bytes

Exact: TypeAlias = int | Decimal
_MOST_BYTES = 2**60


class Section:
    """One table of a file. Every taker raises ``ValueError`` naming the key and the value."""

    def __init__(self, data: Mapping[str, Any], path: str = "") -> None:
        self._data = data
        self._path = path
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def is_table(self, key: str) -> bool:
        """Whether the value is a table of its own."""
        return isinstance(self._data.get(key), Mapping)

    def section(self, key: str) -> Section:
        """The table under a key."""
        value = self._take(key)
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "a table of keys and values")
        return Section(value, self._name(key))

    def text(self, key: str) -> str:
        """Words, not empty."""
        value = self._take(key)
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(key, value, "a text that says something")
        return value

    def choice(self, key: str, known: tuple[str, ...], default: str) -> str:
        """One of the words that are known."""
        value = self._take(key, default)
        if value not in known:
            raise self._wrong(key, value, f"one of {', '.join(known)}")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def size(self, key: str, least: int = 0) -> int:
        """Bytes."""
        value = self._take(key)
        try:
            size = parse_bytes(value)
        except (ValueError, OverflowError) as error:
            raise self._wrong(key, value, "a size in bytes, or with a unit such as '512 MiB'") from error
        if not least <= size <= _MOST_BYTES:
            raise self._wrong(key, value, f"from {least} to {_MOST_BYTES} bytes")
        return size

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        return self._integer(key, self._take(key, default), least, most)

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of integers from 0."""
        value = self._take(key, default)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list of integers")
        return tuple(self._integer(key, item, 0, 10**15) for item in value)

    def number(self, key: str, most: int, default: int | None = None) -> Exact:
        """A number from 0 to ``most``."""
        return self._number(key, self._take(key, default), most)

    def grid(self, key: str, most: int) -> tuple[tuple[Exact, ...], ...]:
        """Rows of numbers from 0 to ``most``; a number alone is a row of one."""
        value = self._take(key)
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list of rows of numbers")
        rows = (item if isinstance(item, list) else [item] for item in value)
        return tuple(tuple(self._number(key, item, most) for item in row) for row in rows)

    def check_rest(self) -> None:
        """Refuse what nobody has taken."""
        unknown = sorted(set(self._data) - self._taken)
        if unknown:
            where = f"{self._path} has " if self._path else ""
            raise ValueError(f"{where}unknown keys {', '.join(unknown)}; known are {', '.join(sorted(self._taken))}")

    def _take(self, key: str, default: Any = None) -> Any:
        self._taken.add(key)
        value = self._data.get(key, default)
        if value is None:
            raise ValueError(f"{self._name(key)} is missing")
        return value

    def _integer(self, key: str, value: Any, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(key, value, f"an integer from {least} to {most}")
        return value

    def _number(self, key: str, value: Any, most: int) -> Exact:
        exact = type(value) is int or (isinstance(value, Decimal) and value.is_finite())
        if not exact or not 0 <= value <= most:
            raise self._wrong(key, value, f"a number from 0 to {most}")
        number: Exact = value
        return number

    def _wrong(self, key: str, value: Any, wanted: str) -> ValueError:
        shown = str(value) if isinstance(value, Decimal) else repr(value)
        return ValueError(f"{self._name(key)} is {shown}: it must be {wanted}")

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
