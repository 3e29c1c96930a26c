"""A decode run that is shorter the more often decisions arrive.

A run that a decision stops has paid for more tokens than it made, and where the backend can't stop it the decision
waits for all of it; without decisions a longer run costs less scheduling. So a run has as many tokens as let
``expected`` decisions arrive while it lasts.

The rate of arrivals is ``(rate * window + new) / (window + elapsed)``, with ``new`` arrivals in the ``elapsed`` time
since the last run: a mean over about a window, which forgets as time passes.

Bounds: 1 to ``most`` tokens. A run has one token, or lasts no longer than ``expected / rate``; before a token was
measured it has one. After a silence of ``T`` the rate is at most ``window / (window + T)`` of what it was, so runs
have ``most`` tokens again at the latest ``window * rate * token_ns * most / expected`` after the last decision.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..parameters import number, whole
from ..views import Quantum, QuantumView


@attrs.frozen
class Rate:
    """Memory: arrivals for each nanosecond, and the decisions counted when it was last brought up to date, ``at``."""

    rate: float = 0.0
    decisions: int = 0
    at: int = 0


def arrivals(expected: float = 0.25, most: int = 32, window_ms: float = 2000) -> Quantum:
    """Let ``expected`` (0.001 to 1,000) decisions arrive during a run of 1 to ``most`` (1 to 1,024) tokens.

    ``window_ms`` (1 to 3,600,000) is how far back arrivals count.
    """
    expected = number("arrivals", "expected", expected, 0.001, 1000)
    most = whole("arrivals", "most", most, 1, 1024)
    window = number("arrivals", "window_ms", window_ms, 1, 3_600_000) * 1_000_000

    def decide(view: QuantumView, memory: Any) -> tuple[int, Any]:
        before = memory or Rate(at=view.at)
        arrived = before.rate * window + max(0, view.decisions - before.decisions)
        rate = arrived / (window + max(0, view.at - before.at))
        kept = Rate(rate, view.decisions, view.at)
        if view.token_ns <= 0:
            return 1, kept
        tokens = most if rate == 0 else int(min(most, expected / (rate * view.token_ns)))
        return max(1, tokens), kept

    return decide
