"""The earliest deadline first within a class; the classes as in ``strict``.

Rule 1. Classes in order of urgency with a bounded share for the lower ones (``share.py``); preparation only
        when nothing else waits.
Rule 2. Within a class a decision request that has started, or a suspended chunk, comes first; then the
        earliest due.
Rule 3. A step is due at its deadline, but not before it was submitted and at the latest ``slack`` after;
        without a deadline, ``slack`` after. Thus a deadline that is far away or long missed can neither be
        starved nor starve.

Between decisions the order is arrival: the decision actor offers a step of its oldest request only, so two
decisions of one model are never compared here, whatever their deadlines. What the rules order by deadline are
the generations of a class.

Bounds: those of ``strict``. They hold for a policy that is offered several decisions as well, where "the
decisions before it" are those due earlier, all submitted within ``slack`` of its own submission, and a lower
class's segment may then be later than under ``strict`` by ``2 * slack``. Within a class a step waits for
steps submitted within ``slack`` of its own, and for no later ones. Earliest deadline first is Liu and Layland's
deadline driven scheduling (1973); a running step is not stopped for an earlier deadline of its own class.
"""

from __future__ import annotations

from ..parameters import number, whole
from ..views import Ordering, StepView, WorkClass
from .share import by_class


def deadline(slack_ms: int = 2000, share: float = 0.1) -> Ordering:
    """Order by class, then by deadline; ``slack_ms`` (1 to 3,600,000) bounds it, ``share`` as in ``strict``."""
    slack = whole("deadline", "slack_ms", slack_ms, 1, 3_600_000) * 1_000_000

    def order(step: StepView) -> tuple[int, ...]:
        latest = step.submitted + slack
        due = latest if step.deadline is None else min(max(step.deadline, step.submitted), latest)
        begun = step.started if step.work_class is WorkClass.DECISION else step.suspended
        return step.work_class, not begun, due, step.submitted

    return by_class(order, number("deadline", "share", share, 0.01, 0.5))
