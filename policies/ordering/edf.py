"""The earliest deadline first, whatever the class: for comparison with the orders that put decisions first.

Rule 1. Every step is due ``relative`` after its submission, with one ``relative`` time a class; a decision's steps are
        due after the arrival of its request. A deadline of the request's own makes that earlier, not later, and at
        the earliest the submission.
Rule 2. The step due first has the device, and a running step yields to one that is due earlier. As dues do not change
        while steps wait, no two steps take the device from each other in turns.
Rule 3. Preparation runs only when nothing else waits, and yields to all others.

Bounds, for steps that find workspace (``room.py``). Let ``c`` be the longest segment, ``U`` the longest whole step or
whole decision request, and ``n`` the most other requests open at once, preparations aside:

* a step waits for work that is due no later than itself: its first segment comes within ``relative + n * U + c``, as
  what is submitted after its due precedes it no more, and each other request has one step waiting then;
* decisions have no other promise than this: work due earlier passes them, and between two slices too;
* preparation has no bound, and makes at least one segment of progress whenever it gets the device.

Earliest deadline first is Liu and Layland's deadline driven scheduling (1973): where all deadlines can be kept, it
keeps them.
"""

from __future__ import annotations

from typing import Any

from ..parameters import number
from ..views import Choice, Ordering, OrderingView, StepView, WorkClass
from .room import give_way, make_room

_MS = 1_000_000


def edf(decision_ms: float = 100, foreground_ms: float = 1000, utility_ms: float = 10_000) -> Ordering:
    """Order by due time; the parameters (1 to 3,600,000) are each class's ``relative`` time."""
    named = {"decision_ms": decision_ms, "foreground_ms": foreground_ms, "utility_ms": utility_ms}
    relative = [round(number("edf", name, value, 1, 3_600_000) * _MS) for name, value in named.items()]

    def rank(step: StepView) -> tuple[int, int]:
        if step.work_class is WorkClass.PREPARATION:
            return 1, step.submitted
        since = step.request_arrived if step.work_class is WorkClass.DECISION else step.submitted
        due = since + relative[step.work_class]
        return 0, due if step.deadline is None else min(due, max(since, step.deadline))

    def decide(view: OrderingView, memory: Any) -> tuple[Choice, Any]:
        running = view.running
        if running is None:
            return make_room(view, min(view.waiting, key=rank)), memory
        limit = (1, 0) if running.work_class is WorkClass.PREPARATION else rank(running)
        ahead = [step for step in view.waiting if rank(step) < limit]
        return give_way(view, min(ahead, key=rank, default=None)), memory

    return decide
