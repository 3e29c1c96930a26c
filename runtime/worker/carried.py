"""Typed errors across the pipe: each comes out as itself, with its fields, and its cause as text."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from typing import Any

import attrs

from ...actors.errors import BackendFault, CoresidentError

LONGEST_TEXT = 1 << 14


class WorkerCause(Exception):
    """What was behind an error in the worker, as its traceback read there."""


@attrs.frozen
class CarriedError:
    """An error as flat fields. ``details`` is JSON; lists in it come back as tuples."""

    type: str
    message: str
    details: str
    cause: str | None

    @classmethod
    def of(cls, error: CoresidentError) -> CarriedError:
        cause = error.__cause__ or error.__context__
        text = "".join(traceback.format_exception(cause)) if cause is not None else None
        details = json.dumps(dict(error.details), default=repr)
        return cls(
            type=type(error).__name__,
            message=error.message[:LONGEST_TEXT],
            details=details if len(details) <= LONGEST_TEXT else "{}",
            cause=text if text is None else text[-LONGEST_TEXT:],
        )

    def error(self) -> CoresidentError:
        """The error again; one of a type that isn't known here is a ``BackendFault`` that says so."""
        kinds = {kind.__name__: kind for kind in _kinds(CoresidentError)}
        kind = kinds.get(self.type)
        message = self.message if kind is not None else f"{self.type}: {self.message}"
        kind = kind or BackendFault
        error = kind.__new__(kind)
        Exception.__init__(error, message)
        error.message, error.details = message, self._details()
        if self.cause is not None:
            error.__cause__ = WorkerCause(self.cause)
        return error

    def _details(self) -> dict[str, Any]:
        try:
            details = json.loads(self.details)
        except ValueError:
            return {}
        return {name: _tuples(value) for name, value in details.items()} if isinstance(details, dict) else {}


def _kinds(base: type[CoresidentError]) -> Iterator[type[CoresidentError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value
