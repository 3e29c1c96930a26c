"""A device shared among the classes by weight, decisions passed by one segment at most.

Start-time fair queueing (Goyal, Vin and Cheng, 1996), with classes for flows and measured device time for packets.

Rule 1. A class has a tag: its virtual time. A grant adds its device time, divided by the class's weight. The virtual
        time of the device is the smallest tag of the classes that wait, and a class that comes back starts from
        there: idleness saves nothing up.
Rule 2. The waiting class with the smallest tag has the device. But a decision goes on if it was passed by a segment
        before, or its request has started; and the decisions' tag is never more than just behind the others': what
        they had beyond their share is not held against them.
Rule 3. A running step yields to more urgent classes: with such work waiting, a grant is one segment. Who is first
        within a class is as in ``strict``.
Rule 4. Preparation has no weight: it runs when nothing else waits, and yields to all others.

Bounds, for steps that find workspace (``room.py``). Let ``w`` be weights and ``l`` longest steps, of the class ``k``
asked about, of ``d`` (decisions) and of ``o``, the other one of foreground and utility; ``c`` the longest segment,
``D`` the longest whole decision request and ``Q`` the most decisions open at once:

* a decision waits for one segment of other work and the decisions before it;
* foreground or utility, while it waits, gets a segment within ``(w_d + w_o) * l_k / w_k + l_o + D + c`` and, after
  each of the grants that ``o`` had meanwhile and once more, the decisions that were passed: ``Q * D``;
* while both wait and no decision does, what foreground and utility had, each divided by its weight, differs by at most
  ``l_f / w_f + l_u / w_u``, whenever one begins to count: so a class that comes back has no more than its share;
* preparation has no bound, and makes at least one segment of progress whenever it gets the device.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..parameters import number
from ..views import Choice, Ordering, OrderingView, StepView, WorkClass
from .room import give_way, make_room
from .share import may_pass


@attrs.frozen
class Tags:
    """Memory: the virtual time, each class's tag in order of urgency, and the class granted last, and when."""

    virtual: int = 0
    tags: tuple[int, ...] = (0, 0, 0)
    granted: WorkClass = WorkClass.PREPARATION
    at: int = 0


def weighted_fair(decision: float = 8.0, foreground: float = 3.0, utility: float = 1.0) -> Ordering:
    """Share the device by weight; the parameters (0.01 to 1,000) are the classes' weights."""
    named = {"decision": decision, "foreground": foreground, "utility": utility}
    weights = tuple(number("weighted_fair", name, weight, 0.01, 1000) for name, weight in named.items())

    def decide(view: OrderingView, memory: Any) -> tuple[Choice, Any]:
        if view.running is not None:
            urgent = [step for step in view.waiting if step.work_class < view.running.work_class]
            return give_way(view, min(urgent, key=_order, default=None)), memory
        tags = _charged(memory or Tags(), view.free_since, weights)
        waiting = {step.work_class for step in view.waiting} - {WorkClass.PREPARATION}
        raised = tuple(max(tag, tags.virtual) if k in waiting else tag for k, tag in enumerate(tags.tags))
        first = _first(waiting, raised, view.waiting)
        choice = make_room(view, min((s for s in view.waiting if s.work_class is first), key=_order))
        granted = next(step.work_class for step in view.waiting if step.step == choice.step)
        virtual = min((raised[k] for k in waiting), default=tags.virtual)
        return choice, Tags(virtual, raised, granted, view.at)

    return decide


def _order(step: StepView) -> tuple[int, ...]:
    if step.work_class is WorkClass.DECISION:
        return step.work_class, not step.started, step.request_arrived
    return step.work_class, not step.suspended, step.submitted


def _first(waiting: set[WorkClass], tags: tuple[int, ...], steps: tuple[StepView, ...]) -> WorkClass:
    """The class whose turn it is."""
    if WorkClass.DECISION in waiting and not may_pass(steps):
        return WorkClass.DECISION
    return min(waiting, key=lambda k: (tags[k], k), default=WorkClass.PREPARATION)


def _charged(before: Tags, free_since: int, weights: tuple[float, ...]) -> Tags:
    """The tags with what the last grant used; idle time after it is nobody's."""
    if before.granted is WorkClass.PREPARATION:
        return before
    tags = list(before.tags)
    tags[before.granted] += round(max(0, free_since - before.at) / weights[before.granted])
    tags[0] = min(tags[0], max(before.virtual, *tags[1:]) + 1)
    return attrs.evolve(before, tags=tuple(tags))
