"""The digest of a run: one hash over every message from outside, every effect and charge, told after each delivery.

The form is text: values by their ``repr``, classes by their name and fields. What an audit can't know is left out:
paths, launches, the words of errors, and token ids (sequences are their lengths), which most traces don't have, and
none of a request that has not ended. So are finished scores, which follow from the raw ones by functions whose last
digit differs between machines. The first twelve hexadecimal digits are told: an accident passes one time in 2^48.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, TypeAlias

import attrs

from ...actors.errors import CoresidentError
from ...runtime.host.observers import Delivery
from ..events_messages import Charge, Given

_Put: TypeAlias = Callable[[Any, list[str]], None]
_Fields: TypeAlias = tuple[tuple[str, _Put, bool], ...]
_LENGTH = 12
_PLAIN = frozenset({int, str, bool, float, type(None)})
_SKIPPED = {("PrefixFile", "path"), ("PrefixFile", "launch"), ("StorePrefix", "path"), ("StorePrefix", "launch")} | {
    ("CheckpointEnded", "path"),
    ("DecodeRow", "token"),
    ("HeadScores", "values"),
}
_SEQUENCES = {"tokens", "prompt", "instruction"}
# Fields that came later: written where they say something, so that what was recorded before has its digest still.
_ADDED = {
    ("Ended", "shown"): (),
    ("Failed", "shown"): (),
    ("LoadWork", "repair"): False,
    ("Unavailable", "restart"): False,
}


class RunDigest:
    """Hashes deliveries."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b()
        self._fields: dict[type[Any], _Fields | None] = {}

    def add(self, delivery: Delivery, given: Given | None, charges: Iterable[Charge]) -> str:
        """Take a delivery and what was written of it; the digest of all so far."""
        message = delivery.message
        out = [f"{delivery.at} {delivery.actor} {type(message).__name__}"]
        if given is not None:
            self._put(given, out)
            self._put(message, out)
        for value in (*delivery.effects, *charges):
            self._put(value, out)
        out.append("\n")
        self._hash.update("".join(out).encode())
        return self._hash.copy().hexdigest()[:_LENGTH]

    def _put(self, value: Any, out: list[str]) -> None:
        kind = type(value)
        if kind in _PLAIN:
            out.append(f" {value!r}")
        elif kind is tuple:
            out.append(" (")
            for item in value:
                self._put(item, out)
            out.append(" )")
        elif (fields := self._fields_of(kind)) is not None:
            out.append(f" {kind.__name__}[")
            for name, put, always in fields:
                item = getattr(value, name)
                if always and type(item) in _PLAIN:
                    out.append(f" {item!r}")
                else:
                    put(item, out)
            out.append(" ]")
        else:
            out.append(self._other(value))

    def _fields_of(self, kind: type[Any]) -> _Fields | None:
        """How the fields of a class are written; ``None`` when it has none."""
        try:
            return self._fields[kind]
        except KeyError:
            found = self._fields[kind] = tuple(self._plan(kind)) if attrs.has(kind) else None
            return found

    @staticmethod
    def _other(value: Any) -> str:
        """Words and numbers of enumerations and of a policy's own types, errors by their type."""
        if isinstance(value, Enum):
            return f" {value.name}"
        if isinstance(value, CoresidentError):
            return f" !{type(value).__name__}"
        for kind in (str, int, float):
            if isinstance(value, kind):
                return f" {kind(value)!r}"
        return f" ?{type(value).__name__}"

    def _plan(self, cls: type[Any]) -> Iterable[tuple[str, _Put, bool]]:
        """The fields of a class that count, how each is written, and whether that is so for any value."""
        for field in attrs.fields(cls):
            place = (cls.__name__, field.name)
            if place in _SKIPPED:
                continue
            sequence = field.name in _SEQUENCES or place == ("SubmitDecision", "rows")
            if place in _ADDED:
                yield field.name, partial(self._put_added, _ADDED[place]), False
            else:
                yield field.name, self._put_length if sequence else self._put, True

    def _put_added(self, default: object, value: Any, out: list[str]) -> None:
        if value != default:
            self._put(value, out)

    def _put_length(self, value: Any, out: list[str]) -> None:
        """A token sequence as its length, and those of sequences in it."""
        if type(value) is not tuple:
            self._put(value, out)
            return
        out.append(f" #{len(value)}")
        for item in value:
            if type(item) is tuple:
                self._put_length(item, out)
