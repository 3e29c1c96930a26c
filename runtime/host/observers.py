"""Observers: they see every delivery and every token, and can't break the loop.

An observer that raises is dropped and the failure is logged; the run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import attrs
import structlog

from ...actors.effects import Effect, Notify, Report
from ...actors.events import Event
from ...actors.messages import Message

_log = structlog.get_logger("coresident")


@attrs.frozen
class Delivery:
    """One message taken by one actor: its order in the whole run, its time, and what the actor wanted done."""

    sequence: int
    at: int
    actor: str
    message: Message
    effects: tuple[Effect, ...]

    def events(self) -> Iterator[Event]:
        """Events among the effects, in order."""
        for effect in self.effects:
            if isinstance(effect, Notify | Report):
                yield effect.event


class Observer(Protocol):
    """Sees a run; called on the host's thread."""

    def delivered(self, delivery: Delivery) -> None: ...

    def token(self, request: str, index: int, at: int) -> None:
        """Token ``index`` of a request was produced at time ``at``."""
        ...

    def dropped(self, error: Exception) -> None:
        """This observer raised and is told nothing more."""
        ...


class Observers:
    """Observers, fewer once one of them has failed."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers: tuple[Observer, ...] = tuple(observers)
        self._of_tokens = self._observers

    def add(self, observer: Observer, tokens: bool = True) -> None:
        """Add an observer; without ``tokens`` it sees deliveries only, which costs nothing while a step runs."""
        self._observers = (*self._observers, observer)
        if tokens:
            self._of_tokens = (*self._of_tokens, observer)

    @property
    def want_tokens(self) -> bool:
        return bool(self._of_tokens)

    def delivered(self, delivery: Delivery) -> None:
        for observer in self._observers:
            try:
                observer.delivered(delivery)
            except Exception as error:
                self._drop(observer, error)

    def token(self, request: str, index: int, at: int) -> None:
        for observer in self._of_tokens:
            try:
                observer.token(request, index, at)
            except Exception as error:
                self._drop(observer, error)

    def _drop(self, observer: Observer, error: Exception) -> None:
        self._observers = tuple(one for one in self._observers if one is not observer)
        self._of_tokens = tuple(one for one in self._of_tokens if one is not observer)
        _log.error("observer.dropped", observer=type(observer).__name__, error=repr(error))
        try:
            observer.dropped(error)
        except Exception as again:
            _log.error("observer.dropped.again", observer=type(observer).__name__, error=repr(again))
