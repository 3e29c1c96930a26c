"""Prepare once foreground work has been quiet for a while.

A person about to send the next message, or an agent between two tool calls, would only preempt the preparation; the
quiet time leaves the device alone until idleness is likely to last.
"""

from __future__ import annotations

from typing import Any

from ..parameters import number
from ..views import Preparation, PreparationView

_MS = 1_000_000


def after_quiet(quiet_ms: float = 250) -> Preparation:
    """Let preparation begin ``quiet_ms`` (0 to 3,600,000) after other work has last ended."""
    quiet = int(number("after_quiet", "quiet_ms", quiet_ms, 0, 3_600_000) * _MS)

    def decide(view: PreparationView, memory: Any) -> tuple[int | None, Any]:
        if view.open:
            return None, memory
        return max(view.at, view.quiet_since + quiet), memory

    return decide
