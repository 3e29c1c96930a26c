"""The prefix that is cheapest to compute again, for the bytes it holds, goes first.

GreedyDual-Size with frequency (Cao and Irani, "Cost-Aware WWW Proxy Caching Algorithms", 1997; Cherkasova,
1998). An entry's worth is ``clock + (uses + 1) * cost_ns / bytes``, where ``clock`` is the worth of the entry
evicted last at the time of its last use. As the clock only rises, worth that is not used again is overtaken,
however dear it was.

The clock moves only when something is evicted, which is when this policy is asked: an entry whose
``last_used`` differs from the remembered one was used under the present clock. So the view and the memory
suffice, and no use is missed.

Bound: one that is used no more, with ``V = (uses + 1) * cost_ns / bytes``, goes within ``(n + 1) * (V / v + 1)``
evictions, where ``n`` others are kept beside it and ``v`` is the least such value among them: at most ``n`` evictions
pass before the clock rises by ``v``.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..views import RetainedView, Retention, RetentionView


@attrs.frozen
class Worths:
    """Memory: the clock, and of each entry seen ``(handle, last_used, clock at that use)``."""

    clock: float = 0.0
    seen: tuple[tuple[int, int, float], ...] = ()


def cost() -> Retention:
    """Evict the least worth, among equals the oldest handle; it has no parameters."""

    def decide(view: RetentionView, memory: Any) -> tuple[int, Any]:
        worths = memory or Worths()
        known = {(handle, used): clock for handle, used, clock in worths.seen}
        base = {e.handle: known.get((e.handle, e.last_used), worths.clock) for e in view.entries}
        worth = {e.handle: base[e.handle] + _value(e) for e in view.entries}
        evicted = min(view.entries, key=lambda e: (worth[e.handle], e.handle)).handle
        seen = tuple((e.handle, e.last_used, base[e.handle]) for e in view.entries if e.handle != evicted)
        return evicted, Worths(worth[evicted], seen)

    return decide


def _value(entry: RetainedView) -> float:
    return (entry.uses + 1) * entry.cost_ns / max(1, entry.bytes)
