"""Urgency that grows with waiting: the longer a step waits, the more urgent class it counts as.

Rule 1. A step that waits rises by ``rate`` classes a second. All rise alike, so the order is that of
        ``submitted + class * horizon`` with ``horizon = 1 s / rate``, which does not change while they wait.
Rule 2. Decisions: the request that has started first, then by arrival. Risen work precedes a decision for one
        segment, and only if no waiting decision was passed before or belongs to a request that has started.
Rule 3. Preparation does not rise: it runs when nothing else waits.
Rule 4. A running step yields to any decision unless it is one, and to a more urgent class that is also ahead
        by rule 1; preparation yields to all others. The order is fixed, so no two steps take the device from
        each other in turns.

Bounds, for steps that find workspace (``room.py``), with ``c``, ``D`` and ``Q`` as in ``strict``:

* a decision waits for one segment of other work and the decisions before it;
* a step of class ``k`` (foreground 1, utility 2) is overtaken only by work submitted less than
  ``k * horizon`` after it, and by decisions that were passed. Its first segment comes within
  ``k * horizon + D + n * (Q * D + c)``, where ``n`` counts the segments of other foreground and utility work
  ahead of it at that time, plus one: each may be followed by the decisions that it passed;
* preparation has no bound, and makes at least one segment of progress whenever it gets the device.
"""

from __future__ import annotations

from typing import Any

from ..parameters import number
from ..views import Choice, Ordering, OrderingView, StepView, WorkClass
from .room import give_way, make_room
from .share import may_pass


def aging(rate: float = 4.0) -> Ordering:
    """Order by class and waiting time; ``rate`` (0.01 to 1,000) classes a second is how fast waiting work rises."""
    horizon = round(1_000_000_000 / number("aging", "rate", rate, 0.01, 1000))

    def rank(step: StepView) -> tuple[int, int]:
        """Preparation last; a decision counts from the arrival of its request."""
        if step.work_class is WorkClass.DECISION:
            return 0, step.request_arrived
        return int(step.work_class is WorkClass.PREPARATION), step.submitted + step.work_class * horizon

    def decide(view: OrderingView, memory: Any) -> tuple[Choice, Any]:
        decisions = [step for step in view.waiting if step.work_class is WorkClass.DECISION]
        decision = min(decisions, key=lambda step: (not step.started, step.request_arrived), default=None)
        first = min(view.waiting, key=rank, default=None)
        running = view.running
        if running is not None:
            if running.work_class is WorkClass.DECISION:
                return give_way(view, None), memory
            ahead = [step for step in view.waiting if step.work_class < running.work_class]
            ahead = [step for step in ahead if rank(step) < rank(running)]
            return give_way(view, decision or min(ahead, key=rank, default=None)), memory
        if first is None:
            raise ValueError("an ordering policy was asked with nothing waiting and nothing running")
        precedes = first.work_class is not WorkClass.DECISION and may_pass(view.waiting)
        return make_room(view, first if decision is None or precedes else decision), memory

    return decide
