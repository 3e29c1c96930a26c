"""What a test asks of a bench: tokens, scores, whose work was whose, and what was reported."""

from __future__ import annotations

from coresident.actors.errors import CoresidentError
from coresident.actors.events import ChargeExceeded, PolicyFaulted, ReadinessChanged
from coresident.actors.work import PrefillWork, StepRequest


class Questions:
    """Answers from what a :class:`BenchHost` has noted."""

    def tokens(self, request: str) -> tuple[int, ...]:
        """What a generation request has generated so far."""
        return tuple(self.device.streams.get(request, ()))

    def owner(self, step: StepRequest) -> str:
        """The request that a step is for; a promoted one has changed hands."""
        return self.owners.get(step.step, step.work.request if isinstance(step.work, PrefillWork) else step.request)

    def prefilled(self, request: str) -> list[int]:
        """The positions that were prefilled for a generation request or a preparation, in order."""
        works = [s.work for s in self.device.finished if isinstance(s.work, PrefillWork) and self.owner(s) == request]
        return [n for w in works if w.role == "generation" for n in range(w.start, w.start + len(w.tokens))]

    def kept(self) -> list[tuple[int, ...]]:
        """The tokens of every prefix that can be reused, shortest first."""
        entries = [entry for entry in self.generation._kv.prefixes.entries() if entry.ready]
        return sorted((tuple(map(int, entry.tokens)) for entry in entries), key=len)

    def scores(self, request: str) -> dict[str, tuple[float, ...]]:
        """The finished values of a decision request, by head."""
        return {scores.head: scores.values for scores in self.ends[request].scores}

    def faults(self) -> list[tuple[str, CoresidentError]]:
        """Policies that misbehaved."""
        return [(e.policy, e.error) for e in self.events if isinstance(e, PolicyFaulted)]

    def readiness(self) -> list[ReadinessChanged]:
        """Everything the supervisor said."""
        return [event for event in self.events if isinstance(event, ReadinessChanged)]

    def exceeded(self) -> list[ChargeExceeded]:
        """Steps that measured more than their charge."""
        return [event for event in self.events if isinstance(event, ChargeExceeded)]
