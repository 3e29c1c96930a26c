"""The ordering policy behind a guard: what it chooses is checked, and a policy that misbehaves is replaced.

Rule: a choice must be something that was offered and must fit the free workspace once its drops are made; only a
suspended chunk that was never dropped may be dropped. A policy that raises or breaks this ends, first-in first-out
order stands in for it, and the fault is reported.
"""

from __future__ import annotations

from ..policies.errors import PolicyFault
from ..policies.ordering.fifo import fifo
from ..policies.views import Choice, Ordering, OrderingView
from .guard import Guarded


def check_choice(choice: Choice, view: OrderingView) -> None:
    """Raise ``PolicyFault`` unless the choice can be carried out."""
    offered = {step.step: step for step in view.waiting}
    if view.running is not None and choice.step == view.running.step:
        return
    if choice.step not in offered:
        raise PolicyFault(f"ordering chose {choice.step}; offered were {', '.join(offered)}")
    if view.running is not None:
        return
    if len(set(choice.drop)) != len(choice.drop):
        raise PolicyFault(f"ordering dropped a chunk twice in {', '.join(choice.drop)}")
    free = view.free
    for name in choice.drop:
        dropped = offered.get(name)
        if dropped is None or not dropped.suspended or dropped.drops or name == choice.step:
            raise PolicyFault(f"ordering dropped {name}, which is not a suspended chunk dropped for the first time")
        free += dropped.charge
    chosen = offered[choice.step]
    if not chosen.suspended and chosen.charge > free:
        raise PolicyFault(
            f"ordering chose {choice.step}, which is charged {chosen.charge} bytes, with {free} bytes free",
            charge=chosen.charge,
            free=free,
        )


class Chooser:
    """Asks the ordering policy; keeps its memory when the choice is carried out."""

    def __init__(self, ordering: Ordering) -> None:
        self._guarded = Guarded("ordering", ordering, fifo)

    @property
    def faults(self) -> int:
        """How often a policy was replaced."""
        return self._guarded.faults

    def choose(self, view: OrderingView) -> tuple[Choice, PolicyFault | None]:
        """The step to run (or to go on with), and the fault that ended the policy, if one just did."""
        choice = self._guarded.ask(view, lambda choice: check_choice(choice, view), keep=view.running is None)
        return choice, self._guarded.take_fault()
