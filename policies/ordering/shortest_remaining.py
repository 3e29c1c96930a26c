"""The generation that needs least to its end first, within a class; the classes as in ``strict``.

Rule 1. Classes in order of urgency with a bounded share for the lower ones (``share.py``); preparation only when
        nothing else waits. Decisions: the request that has started first, then by arrival.
Rule 2. Within another class a suspended chunk comes first; then the step with the smallest ``submitted +
        remaining``, where ``remaining`` is the device time that its request may still need (its prompt and all the
        tokens it may generate, at measured speed), at most ``horizon``.
Rule 3. Nothing is stopped for work of its own class.

Bounds: those of ``strict`` for a class. Within a class a step is overtaken only by steps submitted less than
``horizon`` after its own: where a class has the device to itself, its first segment comes within ``horizon + n * L``,
with ``n`` other requests of the class and ``L`` its longest step, as each has one step waiting when the horizon ends.

Shortest remaining processing time first has the least mean response time of all orders (Schrage, 1968), and starves
the long; the horizon is what bounds that. Until a token of each kind was measured, the order is that of submission.
"""

from __future__ import annotations

from ..parameters import number
from ..views import Ordering, StepView, WorkClass
from .share import by_class


def shortest_remaining(horizon_ms: float = 5000, share: float = 0.1) -> Ordering:
    """Order by class, then by what is left; ``horizon_ms`` (1 to 3,600,000) bounds it, ``share`` as in ``strict``."""
    horizon = round(number("shortest_remaining", "horizon_ms", horizon_ms, 1, 3_600_000) * 1_000_000)

    def order(step: StepView) -> tuple[int, ...]:
        if step.work_class is WorkClass.DECISION:
            return step.work_class, not step.started, step.request_arrived
        return step.work_class, not step.suspended, step.submitted + min(step.remaining_ns, horizon), step.submitted

    return by_class(order, number("shortest_remaining", "share", share, 0.01, 0.5))
