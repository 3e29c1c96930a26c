"""First come, first served: for comparison with the others, and what one lock around the device gives.

Requests are not batched with each other, as servers of many users do.

The step whose request arrived first has the device, whatever its class, and a running step is never asked to
yield.

Bounds: a step waits for the requests that arrived before its own, and for at most the one step of a later
request that has the device when it is submitted. Nothing is promised to decisions: one that arrives during a
long prefill waits for all of it.
"""

from __future__ import annotations

from typing import Any

from ..views import Choice, Ordering, OrderingView
from .room import give_way, make_room


def fifo() -> Ordering:
    """Order by the arrival of requests, then by the submission of steps; it has no parameters."""

    def decide(view: OrderingView, memory: Any) -> tuple[Choice, Any]:
        if view.running is not None:
            return give_way(view, None), memory
        first = min(view.waiting, key=lambda step: (step.request_arrived, step.submitted))
        return make_room(view, first), memory

    return decide
