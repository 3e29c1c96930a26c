"""How requests ended, recorded and replayed, and where the two differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from ..actors.events import DecisionEnded, GenerationEnded, PreparationEnded, Refused
from .events_schedule import EndDecision, EndGeneration, EndPreparation, Refuse
from .format import Ending

CANCEL_SLACK = 2
End: TypeAlias = GenerationEnded | DecisionEnded | PreparationEnded | Refused
ENDS = (GenerationEnded, DecisionEnded, PreparationEnded, Refused)


@attrs.frozen
class Outcome:
    """``completed``, ``cancelled``, ``abstained``, ``failed`` or ``refused``; of a preparation, what its end says.

    Why; and how many tokens were generated. A preparation generates none and gives no reason but an error.
    """

    outcome: str
    reason: str
    tokens: int = 0
    prepares: bool = False

    @property
    def expectable(self) -> bool:
        """Whether a replay should come out the same: a failure of the recorded run is not part of its workload."""
        return self.outcome != "failed"


@attrs.frozen
class Difference:
    """One request that ended otherwise than when it was recorded."""

    request: str
    recorded: Outcome
    replayed: Outcome


@attrs.frozen
class Comparison:
    """Requests whose outcomes were compared and those that differ.

    ``uncompared`` failed when recorded, or have no end in the trace, which ``untold`` counts. ``ended`` is how often
    each outcome came out now.
    """

    compared: int
    uncompared: int
    differences: tuple[Difference, ...]
    untold: int
    ended: Mapping[str, int]

    @property
    def same(self) -> bool:
        """Whether every compared request came out as recorded."""
        return not self.differences


def recorded_outcome(ending: Ending) -> Outcome:
    """The outcome that a trace tells."""
    match ending:
        case EndGeneration():
            return Outcome(ending.outcome, ending.error or ending.reason, ending.tokens)
        case EndDecision():
            return Outcome(ending.outcome, ending.reason)
        case EndPreparation():
            return Outcome(ending.outcome, ending.error or "", prepares=True)
        case Refuse():
            return Outcome("refused", ending.error)


def replayed_outcome(event: End) -> Outcome:
    """The outcome that a host tells."""
    match event:
        case GenerationEnded():
            return Outcome(event.outcome, type(event.error).__name__ if event.error else event.reason, event.tokens)
        case DecisionEnded():
            return Outcome(event.outcome, event.reason)
        case PreparationEnded():
            return Outcome(event.outcome, type(event.error).__name__ if event.error else "", prepares=True)
        case Refused():
            return Outcome("refused", type(event.error).__name__)


def compare(recorded: Mapping[str, Outcome | None], replayed: Mapping[str, Outcome]) -> Comparison:
    """Compare request by request.

    A cancelled request may have up to two tokens more or less, because a cancel races with the device: on a faster one
    a replay cancels when it has seen one token more than was seen then, and another may be on its way.

    A preparation has no outcome of its own but time: how far it is when something else comes decides between
    ``prepared``, ``promoted``, ``superseded``, ``declined`` and ``cancelled``, so these are all the same here. A
    failure, and a refusal on one side only, are differences.
    """
    expected = {request: outcome for request, outcome in recorded.items() if outcome is not None and outcome.expectable}
    differences = tuple(
        Difference(request, outcome, replayed[request])
        for request, outcome in expected.items()
        if not _same(outcome, replayed[request])
    )
    untold = sum(outcome is None for outcome in recorded.values())
    ended = dict(Counter(outcome.outcome for outcome in replayed.values()).most_common())
    return Comparison(len(expected), len(recorded) - len(expected), differences, untold, ended)


def _same(recorded: Outcome, replayed: Outcome) -> bool:
    if recorded.prepares and replayed.prepares:
        return replayed.expectable
    if recorded.outcome == replayed.outcome == "cancelled":
        return recorded.reason == replayed.reason and abs(recorded.tokens - replayed.tokens) <= CANCEL_SLACK
    return recorded == replayed
