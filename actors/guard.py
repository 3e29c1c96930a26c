"""A policy behind a guard: what it answers is checked, and one that misbehaves is replaced.

Policies may be a user's own. One that raises, or answers what was not offered, ends there: a neutral policy of the
same kind stands in for it from then on, and the fault is there to be reported. Its memory is kept only where the choice
is carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import Repr
from typing import Any, Generic, TypeVar

from ..policies.errors import PolicyFault

V = TypeVar("V")
C = TypeVar("C")
_NEEDED = {
    "ordering": "Choice",
    "quantum": "int",
    "retention": "int",
    "preparation": "int or None",
    "abstention": "str or None",
}
_SHORT = Repr()
_SHORT.maxother = 80


class Guarded(Generic[V, C]):
    """One policy of a ``kind``, and what stands in for it once it has misbehaved."""

    def __init__(
        self,
        kind: str,
        policy: Callable[[V, Any], tuple[C, Any]],
        stand_in: Callable[[], Callable[[V, Any], tuple[C, Any]]],
    ) -> None:
        self.faults = 0
        self._kind = kind
        self._policy = policy
        self._stand_in = stand_in
        self._memory: Any = None
        self._fault: PolicyFault | None = None

    def ask(self, view: V, check: Callable[[C], None], keep: bool = True) -> C:
        """The policy's choice. ``check`` raises ``PolicyFault`` for one that can't be carried out."""
        try:
            choice, memory = self._answer(view, check)
        except (Exception, SystemExit) as error:
            fault = PolicyFault(f"{self._kind} raised {error!r}: fix the policy")
            self._fault = error if isinstance(error, PolicyFault) else fault
            self.faults += 1
            self._policy, self._memory = self._stand_in(), None
            choice, memory = self._policy(view, None)
        if keep:
            self._memory = memory
        return choice

    def _answer(self, view: V, check: Callable[[C], None]) -> tuple[C, Any]:
        """What the policy returns, checked. An answer of another kind than is asked for is named as it is."""
        answer = self._policy(view, self._memory)
        try:
            choice, memory = answer
            check(choice)
        except PolicyFault:
            raise
        except Exception as error:
            needed = f"({_NEEDED.get(self._kind, 'choice')}, memory) is needed"
            raise PolicyFault(f"{self._kind} returned {_SHORT.repr(answer)}: {needed}") from error
        return choice, memory

    def take_fault(self) -> PolicyFault | None:
        """The fault that ended the policy, once."""
        fault, self._fault = self._fault, None
        return fault
