"""What was written to files and read back: prefixes that outlive what is retained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs

from .events_schedule import EndCheckpoint
from .events_workload import ArriveCheckpoint
from .fields import FILES
from .format import Event


@attrs.frozen
class CheckpointStatistics:
    """Requests to store prefixes, or to fetch them, by outcome; ``open`` did not end.

    ``tokens`` and ``bytes`` of KV state are those of the completed ones.
    """

    requests: int
    outcomes: Mapping[str, int]
    open: int
    tokens: int
    bytes: int


@attrs.define
class _Counts:
    requests: int = 0
    outcomes: Counter[str] = attrs.field(factory=Counter)
    tokens: int = 0
    bytes: int = 0


class CheckpointTally:
    """Takes events in order."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._counts = {action: _Counts() for action in FILES}

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case ArriveCheckpoint(request=request, action=action):
                self._open[request] = action
                self._counts[action].requests += 1
            case EndCheckpoint(request=request, outcome=outcome) if request in self._open:
                counts = self._counts[self._open.pop(request)]
                counts.outcomes[outcome] += 1
                if outcome == "completed":
                    counts.tokens += event.tokens
                    counts.bytes += event.bytes
            case _:
                pass

    def result(self) -> dict[str, CheckpointStatistics]:
        """Statistics by action, ``store`` and ``fetch``; none of what was not asked for."""
        return {
            action: CheckpointStatistics(
                requests=counts.requests,
                outcomes=dict(sorted(counts.outcomes.items())),
                open=counts.requests - counts.outcomes.total(),
                tokens=counts.tokens,
                bytes=counts.bytes,
            )
            for action, counts in self._counts.items()
            if counts.requests
        }
