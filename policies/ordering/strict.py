"""Urgent work first, a bounded share for the rest: the default.

Rule 1. Classes in order of urgency; preparation only when nothing else waits.
Rule 2. Decisions: the request that has started first, then by arrival. Whole requests run to their end.
Rule 3. Other classes: a suspended chunk first, then the step submitted first. As a stream submits its next
        step when the last one ended, its requests take turns, and a new one waits for one step of each of the
        others.
Rule 4. Classes below the most urgent waiting one get a share (``share.py``), one segment at a time.

Bounds, for steps that find workspace (``room.py``). Let ``c`` be the longest segment, ``D`` the longest whole
decision request, ``Q`` the most decisions open at once, ``U`` the longest unit of more urgent work (``D`` or
a whole step):

* a decision waits for one segment of other work and the decisions before it;
* foreground or utility, while it waits, gets a segment at least every ``c / share + U + 2 * (Q * D + c)``, with
  its step's ``bound_ns`` for the first ``c`` before it had one: the claim, which grows more slowly by what the
  other class gets, rounded up to a unit; then the decisions that were passed, twice because the other class may
  be owed its segment first;
* preparation has no bound, and makes at least one segment of progress whenever it gets the device.
"""

from __future__ import annotations

from ..parameters import number
from ..views import Ordering, StepView, WorkClass
from .share import by_class


def strict(share: float = 0.1) -> Ordering:
    """Order by class with ``share`` (0.01 to 0.5) of a saturated device for each lower class but preparation."""
    return by_class(_order, number("strict", "share", share, 0.01, 0.5))


def _order(step: StepView) -> tuple[int, ...]:
    if step.work_class is WorkClass.DECISION:
        return step.work_class, not step.started, step.request_arrived
    return step.work_class, not step.suspended, step.submitted
