"""An observer that says how a scheduler is: loads, warm-ups and readiness, in the log and to whoever publishes them."""

from __future__ import annotations

from collections.abc import Callable

from ...actors.effects import RunGrant
from ...actors.events import ReadinessChanged
from ...actors.messages import Finished, GrantEnded
from ...actors.work import LoadWork, WarmupWork
from ..logged import Logged, inform, warn
from .observers import Delivery


class HostWatch:
    """Logs, and hands each change of readiness on. It needs no tokens.

    Whoever has read of a fault reads of the way back too, until the scheduler is ready again.
    """

    def __init__(self, on_readiness: Callable[[ReadinessChanged], None]) -> None:
        self._on_readiness = on_readiness
        self._grants: dict[int, tuple[Logged, str]] = {}
        self._faulted = False

    def delivered(self, delivery: Delivery) -> None:
        message = delivery.message
        if isinstance(message, GrantEnded) and self._grants:
            event, model = self._grants.pop(message.grant, (None, ""))
            if event is not None and isinstance(message.outcome, Finished):
                inform(event, model=model)
        changes = [event for event in delivery.events() if isinstance(event, ReadinessChanged)]
        for effect in delivery.effects:
            if isinstance(effect, RunGrant):
                self._granted(effect)
        for change in changes:
            # Nobody else can have asked for it between the two.
            self._changed(change, restarts=changes[-1].state == "recovering")

    def token(self, request: str, index: int, at: int) -> None:
        return

    def dropped(self, error: Exception) -> None:
        return

    def _granted(self, effect: RunGrant) -> None:
        work = effect.grant.step.work
        if isinstance(work, LoadWork):
            self._grants[effect.grant.grant] = (Logged.MODEL_LOADED, work.model)
        elif isinstance(work, WarmupWork):
            self._grants[effect.grant.grant] = (Logged.MODEL_WARM, work.model)

    def _changed(self, now: ReadinessChanged, restarts: bool) -> None:
        fields = {"state": now.state, "revision": now.revision, "context": now.admitted_context}
        if now.error is not None:
            ways = {"next": "it restarts by itself"} if restarts else {"actions": list(now.actions)}
            warn(Logged.READINESS, **fields, **ways, error=f"{type(now.error).__name__}: {now.error.message}")
        elif self._faulted:
            warn(Logged.READINESS, **fields)
        else:
            inform(Logged.READINESS, **fields)
        self._faulted = now.error is not None or (self._faulted and now.state != "ready")
        self._on_readiness(now)
