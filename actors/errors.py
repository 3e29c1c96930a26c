"""The errors of the library, named by who has to act (the names are part of the public API)."""

from __future__ import annotations

from ..policies.errors import CoresidentError, PolicyFault

__all__ = [
    "ArtifactInvalid",
    "BackendFault",
    "BudgetExceeded",
    "Closed",
    "ContextExceeded",
    "CoresidentError",
    "DeviceLost",
    "InvalidRequest",
    "InvalidTransition",
    "Overloaded",
    "PolicyFault",
    "TraceDiverged",
    "TraceInvalid",
]


class InvalidRequest(CoresidentError):
    """The caller asked for something that has no meaning: a bad field, an unknown head or key. The caller acts."""


class ContextExceeded(InvalidRequest):
    """Prompt plus requested output does not fit the admitted context. Carries prompt, requested and admitted tokens.

    A decision's row, with its instruction, does not fit the decision's context: see :meth:`of_row`.
    """

    def __init__(self, prompt: int, requested: int, admitted: int, what: str = "", advice: str = "") -> None:
        what = what or f"prompt of {prompt} tokens plus {requested} requested exceeds the admitted context"
        advice = advice or "shorten the prompt, ask for fewer tokens, or admit a larger context"
        over = prompt + requested - admitted
        super().__init__(
            f"{what} of {admitted} tokens by {over}: {advice}", prompt=prompt, requested=requested, admitted=admitted
        )

    @classmethod
    def of_row(cls, row: int, instruction: int, tokens: int, context: int) -> ContextExceeded:
        """Row ``row`` of ``tokens`` tokens, behind its instruction, exceeds ``decision.context``."""
        return cls(
            instruction + tokens,
            0,
            context,
            f"row {row} takes {instruction + tokens} tokens ({instruction} of the instruction, {tokens} of the row), "
            "which exceeds the decision's context (decision.context)",
            "shorten the row or the instruction, or raise decision.context",
        )


class BudgetExceeded(CoresidentError):
    """Bytes were asked for that the partition or a budget in it does not have. Carries asked and available bytes.

    A device may run out of allocations too; ``unit`` then says so.
    """

    def __init__(self, what: str, asked: int, available: int, advice: str, unit: str = "bytes") -> None:
        super().__init__(
            f"{what} asks for {asked} {unit}, {available} are available, {asked - available} are missing: {advice}",
            what=what,
            asked=asked,
            available=available,
        )


class Overloaded(CoresidentError):
    """A bounded queue is full. Send less, or later."""


class Closed(CoresidentError):
    """The scheduler is closing or closed; nothing more runs."""


class BackendFault(CoresidentError):
    """A step failed in the backend, or used more than it was charged for. The device goes on."""


class DeviceLost(BackendFault):
    """The device is gone until ``retry`` or ``repair``; every open request fails with this."""


class ArtifactInvalid(CoresidentError):
    """A model file, head file or tokenizer is not what it claims to be. Names the file, the field and the value."""


class TraceInvalid(CoresidentError):
    """A trace cannot be read. Names the file, line, field and value."""


class TraceDiverged(CoresidentError):
    """A replay did not come out as the recording did."""


class InvalidTransition(CoresidentError):
    """An actor was asked for a transition its table does not have; carries the history of the work."""
