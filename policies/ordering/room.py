"""Workspace for a chosen step: what suspended chunks have to give up, and whether a running step should give way.

A suspended chunk keeps its charge until it has finished. When a step is chosen that does not fit beside it:

1. Chunks less urgent than the chosen step are dropped, the least urgent first and among equals the youngest,
   and only those that are needed. A chunk that was dropped once is never dropped again, so every chunk
   finishes.
2. If that is not enough, nothing is dropped and the most urgent suspended chunk goes on first: when it ends,
   its bytes are free. Work is never dropped for work that is as urgent or less.
3. If nothing is suspended, the most urgent step that fits goes first, so one step that is too large stops
   nobody else.

Rules 1 and 2 are the only way in which a step of an ordering policy waits for more than its own rules say.
"""

from __future__ import annotations

from ..views import Choice, OrderingView, StepView


def make_room(view: OrderingView, chosen: StepView) -> Choice:
    """Return the choice that gives ``chosen`` the device, or what must go before it for want of ``view.free`` bytes.

    For a free device (``view.running`` is ``None``). When nothing fits at all the answer is ``chosen``, for
    the controller to refuse with its numbers.
    """
    if chosen.suspended or chosen.charge <= view.free:
        return Choice(chosen.step)
    dropped = _dropped(view, chosen)
    if dropped:
        return Choice(chosen.step, tuple(step.step for step in dropped))
    suspended = [step for step in view.waiting if step.suspended]
    fitting = [step for step in view.waiting if step.charge <= view.free]
    return Choice(min(suspended or fitting or [chosen], key=_urgency).step)


def give_way(view: OrderingView, urgent: StepView | None) -> Choice:
    """Return the answer while a step runs: ``urgent`` if the running step should yield to it, else the running step.

    The running step goes on when its yielding would be in vain: it cannot be dropped, because it was dropped before
    or is as urgent, and without its bytes ``urgent`` does not fit.
    """
    running = view.running
    if running is None:
        raise ValueError("give_way answers for a running step, and the view has none: use make_room")
    if urgent is None:
        return Choice(running.step)
    bytes_there = view.free + sum(step.charge for step in _droppable(view, urgent))
    if running.drops == 0 and running.work_class > urgent.work_class:
        bytes_there += running.charge
    fits = urgent.suspended or urgent.charge <= bytes_there
    return Choice(urgent.step if fits else running.step)


def _urgency(step: StepView) -> tuple[int, int]:
    return step.work_class, step.submitted


def _droppable(view: OrderingView, chosen: StepView) -> list[StepView]:
    """The chunks that may be dropped for ``chosen``, the first to go first."""
    chunks = [step for step in view.waiting if step.suspended and step.drops == 0]
    lesser = [step for step in chunks if step.work_class > chosen.work_class]
    return sorted(lesser, key=_urgency, reverse=True)


def _dropped(view: OrderingView, chosen: StepView) -> list[StepView]:
    """The chunks to drop for ``chosen``; none if all of them together would not be enough."""
    missing = chosen.charge - view.free
    taken: list[StepView] = []
    for step in _droppable(view, chosen):
        if missing <= 0:
            break
        taken.append(step)
        missing -= step.charge
    if missing > 0:
        return []
    for step in list(taken):
        if missing + step.charge <= 0:
            taken.remove(step)
            missing += step.charge
    return taken
