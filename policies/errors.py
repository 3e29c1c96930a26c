"""Errors that the lowest room raises; the other rooms build theirs on the same base.

Errors are named by who has to act. Each carries the numbers that explain it, as keyword arguments
kept in ``details``, and a message that says what was asked, what was available and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self


class CoresidentError(Exception):
    """Base of every error this library raises on purpose.

    ``details`` holds the numbers behind the message (bytes, tokens and nanoseconds as integers).
    """

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, object] = details

    def again(self) -> Self:
        """The same error as a new object, to be raised once more.

        An error that is kept and raised for every request would collect a traceback, and with it frames, each time.
        """
        new = type(self).__new__(type(self))
        Exception.__init__(new, self.message)
        new.message, new.details = self.message, self.details
        new.__cause__ = self.__cause__
        return new

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.message, self.details) == (other.message, other.details)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.message))


class PolicyFault(CoresidentError):
    """A policy raised, chose something that was not offered, or could not be loaded. The policy's author acts."""
