"""Requests to store prefixes in files, or to fetch them, as events of a trace. No path is told."""

from __future__ import annotations

from typing import TypeAlias

from ..actors.events import CheckpointEnded, Refused
from ..actors.messages import FetchPrefix, StorePrefix
from .events_schedule import EndCheckpoint
from .events_workload import ArriveCheckpoint
from .format import Event

Asked: TypeAlias = StorePrefix | FetchPrefix


class FileTranslator:
    """Holds which of them are open."""

    def __init__(self) -> None:
        self._open: set[str] = set()

    def __contains__(self, request: str) -> bool:
        return request in self._open

    def asked(self, message: Asked, at: int, now: int) -> tuple[Event, ...]:
        """A request has come, whose id is not open."""
        self._open.add(message.request)
        if isinstance(message, StorePrefix):
            return (ArriveCheckpoint(at, message.request, "store", len(message.tokens), message.identity),)
        return (ArriveCheckpoint(at, message.request, "fetch", len(message.file.tokens), message.file.identity),)

    def ended(self, event: CheckpointEnded, at: int) -> tuple[Event, ...]:
        """It was done, or not."""
        self._open.discard(event.request)
        error = type(event.error).__name__ if event.error is not None else None
        return (EndCheckpoint(at, event.request, event.outcome, event.reason, event.tokens, event.bytes, error),)

    def refused(self, event: object, at: int) -> tuple[Event, ...]:
        """It was never begun; nothing, where the event is not about one of these."""
        if not isinstance(event, Refused) or event.request not in self._open:
            return ()
        self._open.remove(event.request)
        return (EndCheckpoint(at, event.request, "refused", "", 0, 0, type(event.error).__name__),)
