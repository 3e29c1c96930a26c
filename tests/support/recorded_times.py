"""A modelled device whose steps take the time that they took when a trace was recorded.

A step is known by its kind, the request that it serves, and how many such steps that request had before. Its segments
are those of its recorded grants, each grant's device time in equal parts; a decode run gives each of its tokens an
equal part. A step that the recording does not have takes the time of the device model, and is counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

import attrs
from coresident.actors.effects import RunGrant
from coresident.actors.work import DecisionWork, DecodeWork
from coresident.runtime.backends.contract import Segment
from coresident.runtime.backends.modelled import ModelledBackend
from coresident.traces.events_messages import Took
from coresident.traces.events_schedule import Grant, Step
from coresident.traces.reader import TraceReader


@attrs.define
class Timed:
    """A recorded step: device time of each segment, and the tokens of each row where it decoded."""

    segments: list[int] = attrs.field(factory=list)
    tokens: int = 0


class StepTimes:
    """The steps of a trace by request, kind and ordinal."""

    def __init__(self, path) -> None:
        self.steps: dict[tuple[str, str, int], Timed] = {}
        counts: Counter[tuple[str, str]] = Counter()
        open_steps: dict[str, Timed] = {}
        latest = Timed()
        with TraceReader(path) as reader:
            for event in reader:
                match event:
                    case Grant(step=step, kind=kind, requests=requests) if step not in open_steps:
                        place = (requests[0] if requests else step, kind)
                        open_steps[step] = self.steps[*place, counts[place]] = Timed()
                        counts[place] += 1
                    case Step(step=step, measured=measured) if measured is not None:
                        latest = open_steps[step]
                        each, count = divmod(measured.device_ns, measured.segments)
                        latest.segments += [each] * (measured.segments - 1) + [each + count]
                    case Took(given=given) if given is not None and given.ended is not None:
                        latest.tokens = max((row.tokens for row in given.ended.rows), default=0)


class RecordedTimes(ModelledBackend):
    """The backend; also an observer of its host, from which it hears whose step runs.

    What is left of a step's recorded time is held in as many parts as the backend runs the step in.
    """

    def __init__(self, times: StepTimes, model, heads: tuple[str, ...], retained_block: int) -> None:
        super().__init__(model, heads)
        self.capabilities = attrs.evolve(self.capabilities, retained_block=retained_block)
        self.unknown = 0
        self._recorded = times.steps
        self._counts: Counter[tuple[str, str]] = Counter()
        self._left: dict[str, deque[list[int]]] = {}
        self._now: deque[list[int]] = deque()

    def delivered(self, delivery) -> None:
        for effect in delivery.effects:
            if isinstance(effect, RunGrant):
                self._begin(effect.grant)

    def token(self, request: str, index: int, at: int) -> None: ...

    def dropped(self, error: Exception) -> None:
        raise error

    def _begin(self, grant) -> None:
        step = grant.step
        if not grant.resumed:
            request = step.work.rows[0].request if isinstance(step.work, DecodeWork) else step.request
            place = (request, step.work.kind.value)
            timed = self._recorded.get((*place, self._counts[place]))
            self._counts[place] += 1
            self._left[step.step] = deque(_parts(step.work, timed) if timed is not None else ())
            self.unknown += timed is None
        self._now = self._left[step.step]

    def _spend(self, total: int, segments: int = 1) -> Iterator[Segment]:
        if not self._now:
            yield from super()._spend(total, segments)
            return
        part = self._now.popleft()
        for index, device_ns in enumerate(part, 1):
            yield Segment(device_ns, last=index == len(part))


def _parts(work, timed: Timed) -> list[list[int]]:
    if isinstance(work, DecodeWork) and timed.tokens:
        return [[sum(timed.segments) // timed.tokens]] * timed.tokens
    count = len(work.rows) if isinstance(work, DecisionWork) else 1
    size = -(-len(timed.segments) // count)
    return [timed.segments[index * size : (index + 1) * size] or [0] for index in range(count)]
