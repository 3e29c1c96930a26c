"""How far a prediction is from a recording, request by request and metric by metric; never one figure for all.

A metric that is right in total may be wrong for everyone: so each has its own median and p90 of relative errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np

from ...runtime.host.observers import Delivery
from ..events_schedule import EndDecision, Grant, Tokens
from ..events_workload import ArriveDecision, ArriveGeneration
from ..format import Event
from ..reader import TraceReader
from ..translate import Translator

METRICS = ("queue_wait", "first_token", "token_gap", "decision")
FLOOR_NS = 10_000_000
_Figures: TypeAlias = dict[str, list[int]]


@attrs.frozen
class MetricError:
    """The error of one metric over ``count`` values.

    ``median`` and ``p90`` are relative to what was recorded; a recorded time under 10 ms counts as that much, since
    nobody notices less and a wait of next to nothing has no relative error. ``median_ns`` is absolute; ``recorded_ns``
    and ``predicted_ns`` are the medians of all values on either side. ``None`` without any value.
    """

    count: int
    median: float | None = None
    p90: float | None = None
    median_ns: int | None = None
    recorded_ns: int | None = None
    predicted_ns: int | None = None


class Timings:
    """Metrics of every request, in nanoseconds, from the events of a run: an observer of one, too."""

    def __init__(self) -> None:
        self.requests: dict[str, _Figures] = {}
        self.error: Exception | None = None
        self.arrived: dict[str, int] = {}
        self._waiting: set[str] = set()
        self._translator = Translator()

    def add(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ArriveGeneration() | ArriveDecision():
                self.arrived[event.request] = event.at
                self._waiting.add(event.request)
                self.requests[event.request] = {}
            case Grant(requests=requests):
                for request in self._waiting.intersection(requests):
                    self._waiting.discard(request)
                    self.requests[request]["queue_wait"] = [event.at - self.arrived[request]]
            case Tokens(request=request, gaps_ns=(first, *gaps)):
                self.requests[request] |= {"first_token": [first], "token_gap": gaps}
            case EndDecision(request=request, outcome="completed"):
                self.requests[request]["decision"] = [event.at - self.arrived[request]]
            case _:
                pass

    def delivered(self, delivery: Delivery) -> None:
        for event in self._translator.delivery(delivery):
            self.add(event)

    def token(self, request: str, index: int, at: int) -> None:
        self._translator.token(request, at)

    def dropped(self, error: Exception) -> None:
        self.error = error


def timings_of(path: str | Path) -> Timings:
    """The metrics of a recorded run. Raises ``TraceInvalid``."""
    timings = Timings()
    with TraceReader(path) as reader:
        for event in reader:
            timings.add(event)
    return timings


def errors(
    recorded: Mapping[str, _Figures], predicted: Mapping[str, _Figures], requests: Collection[str]
) -> dict[str, MetricError]:
    """The errors of all metrics over some requests; values that only one side has are left out."""
    found = {}
    for metric in METRICS:
        pairs = [
            pair
            for request in requests
            for pair in zip(
                recorded.get(request, {}).get(metric, ()), predicted.get(request, {}).get(metric, ()), strict=False
            )
        ]
        found[metric] = _error(np.array(pairs, dtype=np.int64).reshape(-1, 2))
    return found


def _error(pairs: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> MetricError:
    if not len(pairs):
        return MetricError(0)
    missed = np.abs(pairs[:, 1] - pairs[:, 0])
    relative = missed / np.maximum(pairs[:, 0], FLOOR_NS)
    return MetricError(
        count=len(pairs),
        median=float(np.median(relative)),
        p90=float(np.quantile(relative, 0.9)),
        median_ns=int(np.median(missed)),
        recorded_ns=int(np.median(pairs[:, 0])),
        predicted_ns=int(np.median(pairs[:, 1])),
    )
