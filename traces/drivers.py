"""What both drivers of a replay share: progress, the outcomes so far, and an observer that counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ..runtime.host.observers import Delivery
from .outcomes import Outcome
from .player import Player
from .statistics import Tally, TraceStatistics
from .translate import Translator


@attrs.frozen
class Progress:
    """Requests that have ended, of all; ``at`` is nanoseconds since the replay became ready."""

    done: int
    total: int
    at: int


OnProgress: TypeAlias = Callable[[Progress], None]


@attrs.frozen
class Played:
    """What a replay came to: outcomes by request, statistics, and by how much submissions were late (ns)."""

    outcomes: dict[str, Outcome]
    statistics: TraceStatistics
    drifts: tuple[int, ...]


class Counting:
    """An observer that keeps statistics of a run."""

    def __init__(self) -> None:
        self._translator = Translator()
        self._tally = Tally()
        self._error: Exception | None = None

    def delivered(self, delivery: Delivery) -> None:
        for event in self._translator.delivery(delivery):
            self._tally.add(event)

    def token(self, request: str, index: int, at: int) -> None:
        self._translator.token(request, at)

    def dropped(self, error: Exception) -> None:
        self._error = error

    def result(self) -> TraceStatistics:
        """The statistics. Raises what made the counting stop, if anything did."""
        if self._error is not None:
            raise self._error
        return self._tally.result()


class Scoreboard:
    """Collects outcomes, moves the player on, and tells the progress."""

    def __init__(self, player: Player, total: int, progress: OnProgress | None) -> None:
        self._player = player
        self._total = total
        self._progress = progress
        self._started = 0
        self.outcomes: dict[str, Outcome] = {}

    def start(self, at: int) -> None:
        """The scheduler is ready."""
        self._started = at
        self._player.start(at)

    def ended(self, request: str, outcome: Outcome, at: int) -> None:
        """A request has ended."""
        self.outcomes[request] = outcome
        self._player.ended(request, at)
        if self._progress is not None:
            self._progress(Progress(len(self.outcomes), self._total, at - self._started))
