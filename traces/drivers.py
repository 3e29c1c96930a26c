"""What both drivers of a replay share: progress, the outcomes so far, and an observer that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from ..runtime.host.observers import Delivery
from .events_workload import Content
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
    """What a replay came to: outcomes by request, statistics, and by how much submissions were late (ns).

    ``counts`` has the outcomes of all requests by their word; of a streamed workload ``outcomes`` has none.
    """

    outcomes: dict[str, Outcome]
    counts: Mapping[str, int]
    statistics: TraceStatistics
    drifts: tuple[int, ...]


class _Lengths:
    """Describes contents by their lengths alone."""

    def describe(self, tokens: Sequence[int], ids: bool = False) -> Content:
        return Content(len(tokens), ())

    def trim(self) -> None:
        """Nothing is held."""


class Counting:
    """An observer that keeps statistics of a run. They need lengths of contents, and not what is in them."""

    def __init__(self) -> None:
        self._translator = Translator(blocks=_Lengths())
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
    """Collects outcomes, moves the player on, and tells the progress. Without ``keep`` outcomes are only counted."""

    def __init__(self, player: Player, total: int, progress: OnProgress | None, keep: bool = True) -> None:
        self._player = player
        self._total = total
        self._progress = progress
        self._keep = keep
        self._started = 0
        self.counts: Counter[str] = Counter()
        self.outcomes: dict[str, Outcome] = {}

    @property
    def done(self) -> int:
        """Requests that have ended."""
        return self.counts.total()

    def start(self, at: int) -> None:
        """The scheduler is ready."""
        self._started = at
        self._player.start(at)

    def ended(self, request: str, outcome: Outcome, at: int) -> None:
        """A request has ended."""
        self.counts[outcome.outcome] += 1
        if self._keep:
            self.outcomes[request] = outcome
        self._player.ended(request, at)
        if self._progress is not None:
            self._progress(Progress(self.done, self._total, at - self._started))
