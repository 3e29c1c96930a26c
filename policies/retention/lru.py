"""The prefix that was used least recently goes first.

Bound: one that is used no more goes after those that were used before it, one eviction each.
"""

from __future__ import annotations

from typing import Any

from ..views import Retention, RetentionView


def lru() -> Retention:
    """Evict by time of last use, among equals the oldest handle; it has no parameters."""

    def decide(view: RetentionView, memory: Any) -> tuple[int, Any]:
        return min(view.entries, key=lambda entry: (entry.last_used, entry.handle)).handle, memory

    return decide
