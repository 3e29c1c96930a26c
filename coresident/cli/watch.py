"""An observer that sees who holds the device, and what each decision waited for.

A grant that was told to yield costs a waiting decision one segment, because the flag is looked at after each; a grant
that was not is counted with all its segments. So the count is never too low.
"""

from __future__ import annotations

from collections import deque

import attrs

from ..actors.events import Accepted, DecisionEnded, Event, Granted, Released, YieldAsked
from ..actors.messages import Settled, SubmitStep
from ..actors.work import StepKind, StepRequest
from ..policies.views import WorkClass
from ..runtime.host.observers import Delivery

STRIP = 200


@attrs.define
class Waited:
    """One decision: when it was accepted, what had the device when its first step arrived there, when that was granted.

    ``segments`` of other work passed in between, ``segment_ns`` is the longest of them. Times in nanoseconds.
    """

    request: str
    accepted: int
    arrived: bool = False
    blocker: Granted | None = None
    granted: int | None = None
    ended: int | None = None
    segments: int = 0
    segment_ns: int = 0

    @property
    def waited_ns(self) -> int | None:
        return None if self.granted is None else self.granted - self.accepted

    @property
    def total_ns(self) -> int | None:
        return None if self.ended is None else self.ended - self.accepted

    @property
    def waited_for(self) -> str:
        """What it waited for, in words."""
        if self.blocker is None:
            return "nothing: the device was free"
        if self.blocker.work_class is WorkClass.DECISION:
            return "an earlier decision"
        names = {StepKind.DECODE: "a token of the answer", StepKind.PREFILL: "a part of a prefill chunk"}
        return names.get(self.blocker.kind, f"a part of a {self.blocker.kind.value} step")


class Watch:
    """Sees a run; read its fields at any time. ``now`` has the device, ``strip`` are the latest grants."""

    def __init__(self) -> None:
        self.now: Granted | None = None
        self.yielding = False
        self.strip: deque[Granted] = deque(maxlen=STRIP)
        self.decisions: dict[str, Waited] = {}
        self.device_ns: dict[str, int] = {}
        self.tokens: dict[str, list[int]] = {}

    def delivered(self, delivery: Delivery) -> None:
        match delivery.message:
            case SubmitStep(step):
                self._arrive(step)
            case Settled(next=steps):
                for step in steps:
                    self._arrive(step)
            case _:
                pass
        for event in delivery.events():
            self._see(event, delivery.at)

    def token(self, request: str, index: int, at: int) -> None:
        self.tokens.setdefault(request, []).append(at)

    def dropped(self, error: Exception) -> None:
        self.now = None

    def _see(self, event: Event, at: int) -> None:
        match event:
            case Accepted(request=request, work_class=WorkClass.DECISION):
                self.decisions[request] = Waited(request, at)
            case Granted():
                self._granted(event, at)
            case YieldAsked():
                self.yielding = True
            case Released():
                self._released(event)
            case DecisionEnded(request=request) if request in self.decisions:
                self.decisions[request].ended = at
            case _:
                pass

    def _arrive(self, step: StepRequest) -> None:
        """A step comes to the device: a decision waits from its first one on."""
        waited = self.decisions.get(step.request)
        if waited is not None and not waited.arrived:
            waited.arrived, waited.blocker = True, self.now

    def _granted(self, grant: Granted, at: int) -> None:
        self.now, self.yielding = grant, False
        self.strip.append(grant)
        for waited in self._waiting():
            if waited.request == grant.request:
                waited.granted = at

    def _released(self, end: Released) -> None:
        if self.now is None or end.grant != self.now.grant:
            return
        measured, urgent = end.measured, self.now.work_class is WorkClass.DECISION
        if measured is not None:
            request = self.now.request
            self.device_ns[request] = self.device_ns.get(request, 0) + measured.device_ns
            for waited in () if urgent else self._waiting():
                waited.segments += 1 if self.yielding else measured.segments
                waited.segment_ns = max(waited.segment_ns, measured.longest_segment_ns)
        self.now = None

    def _waiting(self) -> list[Waited]:
        return [each for each in self.decisions.values() if each.arrived and each.granted is None]
