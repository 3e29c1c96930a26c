"""Abstain when late, and when a head does not commit itself.

First the rules of ``deadline``. Then, at ``scored``, reason ``uncertain`` when any head is uncertain:

* a ``choice`` head is uncertain when its highest probability is below ``threshold``;
* a ``probability`` head is uncertain when no row commits itself: ``max(p, 1 - p)`` is below ``threshold`` for
  each;
* a ``rank`` head is never uncertain, as its scores have no absolute meaning.
"""

from __future__ import annotations

from typing import Any

from ..parameters import number
from ..views import Abstention, AbstentionView
from .deadline import deadline


def confident(threshold: float = 0.6, margin: float = 1.0) -> Abstention:
    """Abstain by deadline with ``margin``, and when a head's confidence is below ``threshold`` (0.5 to 1)."""
    threshold = number("confident", "threshold", threshold, 0.5, 1)
    in_time = deadline(number("confident", "margin", margin, 0, 100))

    def decide(view: AbstentionView, memory: Any) -> tuple[str | None, Any]:
        reason, memory = in_time(view, memory)
        if reason is None and view.stage == "scored":
            uncertain = any(_confidence(kind, values) < threshold for kind, values in view.scores)
            reason = "uncertain" if uncertain else None
        return reason, memory

    return decide


def _confidence(kind: str, values: tuple[float, ...]) -> float:
    if kind == "choice":
        return max(values)
    if kind == "probability":
        return max(max(value, 1 - value) for value in values)
    return 1.0
