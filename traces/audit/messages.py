"""From message lines back to messages: what was given from outside, made again of the lines of its delivery."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...actors.messages import (
    Cancel,
    Close,
    DeviceFault,
    Expire,
    Failed,
    FetchPrefix,
    Finished,
    GrantEnded,
    Message,
    PinConversation,
    Recover,
    ReleaseConversation,
    Start,
    StorePrefix,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
    Suspended,
    Wake,
    Withdrawn,
)
from ...actors.work import Measured, PrefixFile, RowResult, RowScores, StepResult
from ...policies.views import WorkClass
from ..codec import Malformed
from ..events_messages import Ended, File, Given, RowTold
from ..events_schedule import Measures, Step
from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest, Pin, Release
from ..messages import error_of
from .groups import Group, Groups

_T = TypeVar("_T")
_A = TypeVar("_A")
_CLASSES = {work_class.label: work_class for work_class in WorkClass}
_PLAIN: dict[str, Callable[[], Message]] = {"Start": Start, "Close": Close, "Wake": Wake}


class Rebuilder:
    """Makes messages again. ``origin`` is what the host's clock showed at the trace's time 0."""

    def __init__(self, groups: Groups, origin: int) -> None:
        self._groups = groups
        self._origin = origin

    def message(self, group: Group, given: Given) -> Message:
        """The message of a delivery. Raises :class:`Malformed` when its lines don't tell it."""
        kind = group.took.message
        at = self._origin + group.took.at
        match kind:
            case "SubmitGeneration":
                return self._generation(given.generation or _told(group, ArriveGeneration), at, given.overdue_ns)
            case "SubmitDecision":
                return self._decision(given.decision or _told(group, ArriveDecision), at, given.overdue_ns)
            case "SubmitPreparation":
                return self._preparation(given.preparation or _told(group, ArrivePreparation))
            case "StorePrefix" | "FetchPrefix":
                return self._file(kind, _needed(given.request, "request"), _needed(given.file, "file"))
            case "GrantEnded":
                return self._ended(group, given.ended or Ended())
            case "DeviceFault":
                return DeviceFault(_typed(error_of, _needed(given.error, "error")))
            case _:
                return self._short(group, given)

    @staticmethod
    def _short(group: Group, given: Given) -> Message:
        match group.took.message:
            case "Cancel" if given.request is None:
                told = _told(group, CancelRequest)
                return Cancel(told.request, told.reason)
            case "Cancel":
                return Cancel(_needed(given.request, "request"), _needed(given.reason, "reason"))
            case "Expire":
                return Expire(_needed(given.request, "request"))
            case "Recover":
                return Recover(_needed(given.action, "action"))
            case "PinConversation":
                pin = _told(group, Pin)
                return PinConversation(pin.conversation, pin.pinned)
            case "ReleaseConversation":
                return ReleaseConversation(_told(group, Release).conversation)
            case plain if plain in _PLAIN:
                return _PLAIN[plain]()
            case other:
                raise Malformed(f"message is {other!r}, which does not come from outside")

    def _generation(self, arrival: ArriveGeneration, at: int, overdue_ns: int) -> SubmitGeneration:
        return SubmitGeneration(
            request=arrival.request,
            prompt=self._groups.tokens.tokens(arrival.prompt),
            max_tokens=arrival.max_tokens,
            identity=arrival.identity,
            work_class=_CLASSES[arrival.work_class],
            deadline=None if arrival.deadline_ns is None else at + arrival.deadline_ns - overdue_ns,
            retain=arrival.retain,
            conversation=arrival.conversation,
            after=arrival.after,
        )

    def _decision(self, arrival: ArriveDecision, at: int, overdue_ns: int) -> SubmitDecision:
        tokens = self._groups.tokens
        return SubmitDecision(
            request=arrival.request,
            instruction=tokens.tokens(arrival.instruction),
            rows=tuple(tokens.tokens(row) for row in arrival.rows),
            heads=arrival.heads,
            identity=arrival.identity,
            deadline=None if arrival.deadline_ns is None else at + arrival.deadline_ns - overdue_ns,
            after=arrival.after,
        )

    def _preparation(self, arrival: ArrivePreparation) -> SubmitPreparation:
        return SubmitPreparation(
            request=arrival.request,
            tokens=self._groups.tokens.tokens(arrival.known),
            standing=arrival.standing,
            identity=arrival.identity,
            conversation=arrival.conversation,
            after=arrival.after,
        )

    def _file(self, kind: str, request: str, file: File) -> StorePrefix | FetchPrefix:
        """Where the file lies is not in the trace, and nothing depends on it."""
        tokens, path = self._groups.tokens.tokens(file.content), f"the file of {request}"
        if kind == "StorePrefix":
            return StorePrefix(request, tokens, file.identity, path, "")
        return FetchPrefix(request, PrefixFile(path, "", file.identity, tokens, file.aligned, file.chunk))

    def _ended(self, group: Group, ended: Ended) -> GrantEnded:
        """By the first ``step`` line of the delivery; a second one is of what was suspended and is then given up."""
        grant, outcome, measured = ended.grant, ended.outcome, ended.measured
        if outcome is None:
            step = _told(group, Step)
            grant, outcome, measured = step.grant, step.outcome, step.measured
        number = _needed(grant, "grant")
        match outcome:
            case "finished":
                return GrantEnded(number, Finished(self._result(ended), _measured(_needed(measured, "measured"))))
            case "suspended":
                return GrantEnded(number, Suspended(_measured(_needed(measured, "measured"))))
            case "withdrawn":
                return GrantEnded(number, Withdrawn(None if measured is None else _measured(measured)))
            case _:
                error = _typed(error_of, _needed(ended.error, "error"))
                return GrantEnded(number, Failed(error, ended.sticky, ended.shown))

    def _result(self, ended: Ended) -> StepResult:
        scores = tuple(RowScores(row.index, tuple(_typed(float, v) for v in row.values)) for row in ended.scores)
        return StepResult(tuple(self._row(row) for row in ended.rows), scores)

    def _row(self, row: RowTold) -> RowResult:
        error = None if row.error is None else _typed(error_of, row.error)
        return RowResult(row.request, self._groups.generated(row.request, row.tokens), row.stop, error)


def _measured(told: Measures) -> Measured:
    return Measured(told.workspace, told.device_ns, told.segments, told.longest_ns, told.step_ns)


def _needed(value: _T | None, name: str) -> _T:
    if value is None:
        raise Malformed(f"field {name!r} is missing in 'given'")
    return value


def _typed(make: Callable[[_A], _T], value: _A) -> _T:
    try:
        return make(value)
    except ValueError as error:
        raise Malformed(str(error)) from None


def _told(group: Group, kind: type[_T]) -> _T:
    for event in group.events:
        if isinstance(event, kind):
            return event
    raise Malformed(f"message {group.took.message} has no line that tells it")
