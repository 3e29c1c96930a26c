"""What the backend charged for which shape: kept by the recorder to write it once, and by an audit to answer it again.

A charge mostly depends on the kind, rows and tokens of a step and not on its context. So the latest one of the same
model, kind, rows and tokens is expected, and only what is otherwise is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...actors.effects import Effect, Send
from ...actors.messages import Settled, SubmitStep
from ...actors.work import DecisionWork, DecodeWork, PrefillWork, StepRequest, StepShape, shape_of
from ..events_messages import Charge


class Charges:
    """Expected charges, in the order of the run."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str, int, int], int] = {}
        self._now: dict[tuple[str, StepShape], int] = {}

    def expected(self, model: str, shape: StepShape) -> int:
        """The charge of a shape within the present delivery; 0 for one that was never asked for."""
        return self._now.get((model, shape), self._latest.get(_key(model, shape), 0))

    def learn(self, charges: Iterable[Charge]) -> None:
        """Begin a delivery, in which these were written."""
        self._now.clear()
        for charge in charges:
            shape = StepShape(_KINDS[charge.kind], charge.rows, charge.tokens, charge.context)
            self._now[charge.model, shape] = self._latest[_key(charge.model, shape)] = charge.charge

    def news(self, effects: Iterable[Effect]) -> tuple[Charge, ...]:
        """What has to be written of the steps that a delivery asked the device for; learned at once."""
        self._now.clear()
        asked = {
            (step.work.model, shape): step.charge
            for step in steps_asked(effects)
            if (shape := shape_of(step.work)) is not None
        }
        keys = {_key(*place) for place, charge in asked.items() if self.expected(*place) != charge}
        news = tuple(
            Charge(model, shape.kind.value, shape.rows, shape.tokens, shape.context, charge)
            for (model, shape), charge in asked.items()
            if _key(model, shape) in keys
        )
        self.learn(news)
        return news


_KINDS = {work.kind.value: work.kind for work in (PrefillWork, DecodeWork, DecisionWork)}


def _key(model: str, shape: StepShape) -> tuple[str, str, int, int]:
    return model, shape.kind.value, shape.rows, shape.tokens


def steps_asked(effects: Iterable[Effect]) -> Iterator[StepRequest]:
    """The steps that a delivery asks the device for."""
    for effect in effects:
        match effect:
            case Send(message=SubmitStep(step)):
                yield step
            case Send(message=Settled(_, steps)):
                yield from steps
            case _:
                pass
