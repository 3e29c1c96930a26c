"""Grants whose steps run in a worker process, and what of them stays on this side of the pipe."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ...actors.errors import CoresidentError
from ...actors.messages import Failed, Finished
from ...actors.work import DecodeWork, Grant, PrefillWork, StepResult, Work
from ..backends.contract import Sampled
from ..worker.flat import Body
from ..worker.messages import TEXT_FAILED
from .executor import Outcome, as_failure
from .steps import Stop, Streams


@attrs.define
class Flight:
    """A grant on its way. What goes wrong with a client's token is kept here, and told again as itself."""

    grant: Grant
    sent: bool = False
    _errors: dict[str, CoresidentError] = attrs.field(factory=dict)
    _raised: Failed | None = None

    def judge(self, streams: Streams, rows: Sequence[tuple[str, Sampled]]) -> Body:
        """Hand tokens to their requests, as a thread executor does where the step runs; the verdict for the worker."""
        stops: list[Stop | None] = []
        try:
            stops = streams.take(rows)
        except Exception as error:
            self._raised = as_failure(error)
        for (request, _), stop in zip(rows, stops, strict=False):
            if isinstance(stop, CoresidentError):
                self._errors[request] = stop
        reasons = [TEXT_FAILED if isinstance(stop, CoresidentError) else stop for stop in stops]
        raised = None if self._raised is None else self._raised.error.message
        return {"kind": "verdict", "id": self.grant.grant, "stops": reasons, "raised": raised}

    def outcome(self, told: Outcome) -> Outcome:
        """What the worker tells, with this side's own errors in their places."""
        if isinstance(told, Failed):
            return self._raised or told
        if not isinstance(told, Finished) or not self._errors:
            return told
        rows = tuple(attrs.evolve(row, error=self._errors.get(row.request)) for row in told.result.rows)
        return Finished(StepResult(rows, told.result.scores), told.measured)


def sampled_in(work: Work) -> Sequence[str]:
    """The requests that a step samples tokens for."""
    match work:
        case PrefillWork(request=request, last=True):
            return (request,)
        case DecodeWork(rows=rows):
            return [row.request for row in rows]
        case _:
            return ()
