"""Reading a lab file's tables: every key is read once, and what is left at the end is refused.

Every refusal names the file, the key with the tables that it stands in, and the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...actors.errors import CoresidentError, InvalidRequest


def refusal(file: str, key: str, value: object, valid: str) -> InvalidRequest:
    """An error about one value of a lab file; ``valid`` says what is wrong with it, or what it may be."""
    return InvalidRequest(f"lab {file}: {key} is {value!r}: {valid}", file=file, key=key, value=value)


class Table:
    """One table of a lab file, with the keys that were not read yet."""

    def __init__(self, file: str, key: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise refusal(file, key, value, "a table of keys and values belongs here")
        self.file = file
        self.key = key
        self._left = dict(value)
        self._known: list[str] = []

    def path(self, key: str) -> str:
        """A key of this table as errors name it."""
        return f"{self.key}.{key}" if self.key else key

    def has(self, key: str) -> bool:
        """Whether a key is there and was not read yet; it is known from now on."""
        self._known.append(key)
        return key in self._left

    def take(self, key: str, default: Any = None) -> Any:
        """A value as it is in the file."""
        self._known.append(key)
        return self._left.pop(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A string that is not empty; needed when there is no default."""
        value = self.take(key, default)
        if value is None:
            raise InvalidRequest(
                f"lab {self.file}: {self.path(key)} is missing: it is needed", file=self.file, key=self.path(key)
            )
        if not isinstance(value, str) or not value:
            raise refusal(self.file, self.path(key), value, "a string that is not empty belongs here")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """``true`` or ``false``."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise refusal(self.file, self.path(key), value, "true or false belongs here")
        return value

    def whole(self, key: str, least: int) -> int | None:
        """A whole number of at least ``least``; ``None`` when it is not there."""
        value = self.take(key)
        return None if value is None else whole(self.file, self.path(key), value, least)

    def items(self, key: str) -> list[tuple[str, Any]]:
        """The entries of a list, each with its key as errors name it; empty when there is no such key."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, list) or not value:
            raise refusal(self.file, self.path(key), value, "a list of at least one value belongs here")
        return [(f"{self.path(key)}[{place}]", entry) for place, entry in enumerate(value)]

    def tables(self) -> Iterator[tuple[str, Any]]:
        """What is left, as pairs of key and value; all of it counts as read."""
        while self._left:
            key = next(iter(self._left))
            yield key, self.take(key)

    def done(self) -> None:
        """Refuse what nobody has read."""
        for key, value in self._left.items():
            known = ", ".join(dict.fromkeys(self._known))
            raise refusal(self.file, self.path(key), value, f"no such option is read; known here are {known}")


def whole(file: str, key: str, value: object, least: int) -> int:
    """A whole number of at least ``least``. Raises ``InvalidRequest``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refusal(file, key, value, f"a whole number of at least {least} belongs here")
    return value


@contextmanager
def naming(file: str, key: str, value: object) -> Iterator[None]:
    """What others find wrong with a value becomes a refusal that names the file, the key and the value."""
    try:
        yield
    except CoresidentError as error:
        # A configuration's own errors end with where in it they are, which is said here already.
        reason = error.message.partition(" @ configuration")[0]
        raise refusal(file, key, value, reason) from error
