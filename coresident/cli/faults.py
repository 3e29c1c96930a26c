"""An observer that tells of policies which were replaced because they misbehaved."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from ..actors.events import PolicyFaulted
from ..runtime.config import PoliciesConfig
from ..runtime.host.observers import Delivery

_log = structlog.get_logger("coresident")
STAND_INS: Mapping[str, str] = {
    "ordering": "fifo",
    "quantum": "fixed",
    "retention": "lru",
    "abstention": "deadline",
    "preparation": "idle",
}


class PolicyFaults:
    """Logs every fault as ``policy.fault`` when it happens, and keeps them for the report: messages by kind."""

    def __init__(self) -> None:
        self.messages: dict[str, list[str]] = {}

    def delivered(self, delivery: Delivery) -> None:
        for event in delivery.events():
            if isinstance(event, PolicyFaulted):
                _log.warning("policy.fault", policy=event.policy, error=event.error.message)
                self.messages.setdefault(event.policy, []).append(event.error.message)

    def token(self, request: str, index: int, at: int) -> None:
        """Tokens tell nothing about policies."""

    def dropped(self, error: Exception) -> None:
        """The host has logged it; what was seen until then stays."""

    def lines(self, policies: PoliciesConfig | None = None) -> list[str]:
        """One sentence for each kind of policy that misbehaved; empty when none did."""
        return [_line(kind, messages, policies) for kind, messages in self.messages.items()]


def _line(kind: str, messages: list[str], policies: PoliciesConfig | None) -> str:
    name = "" if policies is None else f" {getattr(policies, kind).name}"
    times = "once" if len(messages) == 1 else f"{len(messages)} times"
    return f"Policy: {kind}{name} faulted {times}; first: {messages[0]}; {STAND_INS[kind]} stood in from then on."
