"""One decision on its way, as its client waits for it."""

from __future__ import annotations

import trio

from .actors.errors import BackendFault, CoresidentError
from .actors.events import DecisionEnded, Refused, RequestEvent
from .actors.messages import SubmitDecision
from .results import DecisionResult
from .runtime.host.assembly import DECISION
from .runtime.host.live import LiveRuntime


class Deciding:
    """One decision on its way. A cancelled wait cancels the decision."""

    def __init__(self, runtime: LiveRuntime, message: SubmitDecision) -> None:
        self._runtime = runtime
        self._message = message
        self._ended = trio.Event()
        self._outcome: DecisionEnded | CoresidentError | None = None
        self._finished = 0

    async def result(self) -> DecisionResult:
        submitted = self._runtime.host.clock()
        self._runtime.decide(self._message, self._event)
        try:
            await self._ended.wait()
        finally:
            if not self._ended.is_set():
                self._runtime.cancel(DECISION, self._message.request, "abandoned")
                with trio.CancelScope(shield=True):
                    await self._ended.wait()
        if not isinstance(self._outcome, DecisionEnded):
            if self._outcome is None:
                raise BackendFault(f"decision {self._message.request} ended without saying how")
            raise self._outcome.again()
        end = self._outcome
        if end.outcome == "failed" and end.error is not None:
            raise end.error.again()
        return DecisionResult(
            request=end.request,
            outcome=end.outcome,
            reason=end.reason,
            scores={score.head: score.values for score in end.scores},
            instruction_reused=end.instruction_reused,
            total_ns=self._finished - submitted,
        )

    def _event(self, event: RequestEvent, at: int) -> None:
        if isinstance(event, DecisionEnded | Refused):
            self._outcome = event if isinstance(event, DecisionEnded) else event.error
            self._finished = at
            self._runtime.finished(self._message.request)
            self._ended.set()
