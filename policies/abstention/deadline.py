"""Abstain when the answer would come too late.

At ``accepted`` and before each ``slice``: reason ``deadline`` when the deadline has come, or when the time
still needed, times ``margin``, ends after it. At ``scored``: reason ``deadline`` when the deadline has gone
by; an answer exactly at its deadline is in time. A request without a deadline never abstains.
"""

from __future__ import annotations

from typing import Any

from ..parameters import number
from ..views import Abstention, AbstentionView


def deadline(margin: float = 1.0) -> Abstention:
    """Abstain by deadline; a request is held to need ``margin`` (0 to 100) times its estimate."""
    margin = number("deadline", "margin", margin, 0, 100)

    def decide(view: AbstentionView, memory: Any) -> tuple[str | None, Any]:
        return ("deadline" if _late(view, margin) else None), memory

    return decide


def _late(view: AbstentionView, margin: float) -> bool:
    if view.deadline is None:
        return False
    if view.stage == "scored":
        return view.at > view.deadline
    return view.at >= view.deadline or view.at + round(view.remaining_ns * margin) > view.deadline
