"""A decode run that lasts about a given time.

Between two runs other requests of the model may join, so a run's length is what a newcomer waits for: the
time is divided by the number that share it, this run included. Until a token was measured, runs have one
token.
"""

from __future__ import annotations

from typing import Any

from ..parameters import number, whole
from ..views import Quantum, QuantumView


def timed(target_ms: float = 100.0, most: int = 32) -> Quantum:
    """Give a run ``target_ms`` (0.1 to 60,000) when nobody else waits, and 1 to ``most`` (1 to 1,024) tokens."""
    target = number("timed", "target_ms", target_ms, 0.1, 60_000) * 1_000_000
    most = whole("timed", "most", most, 1, 1024)

    def decide(view: QuantumView, memory: Any) -> tuple[int, Any]:
        if view.token_ns <= 0:
            return 1, memory
        tokens = int(target / (1 + view.waiting)) // view.token_ns
        return max(1, min(most, tokens)), memory

    return decide
