"""The device of a virtual host: it runs one grant at a time, segment by segment, and says when the next segment ends.

The yield flag of the running grant is looked at after every segment, as the executor of a real device does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import attrs

from ...actors.messages import Failed, Finished, GrantEnded, Suspended, Withdrawn
from ...actors.work import Grant
from ..backends.contract import Backend, PlanRequest, Segment
from .executor import Meter, as_failure
from .steps import Run, Streams

NEVER = sys.maxsize


@attrs.define
class _Running:
    """The grant that holds the device; ``segment`` is ``None`` in the host's gap in front of the first one."""

    grant: Grant
    run: Run
    meter: Meter
    segment: Segment | None = None
    yield_asked: bool = False
    give_up: bool = False


class VirtualDevice:
    """Runs grants of one backend in virtual time; ``ended(outcome)`` is told how each came out.

    ``ends_at`` is when the running segment ends, and ``NEVER`` when nothing runs. ``suspended`` has the runs of
    suspended chunks by step.
    """

    def __init__(
        self,
        backend: Backend,
        streams: Streams,
        plans: Mapping[str, PlanRequest],
        clock: Callable[[], int],
        ended: Callable[[GrantEnded], None],
    ) -> None:
        self.ends_at = NEVER
        self.suspended: dict[str, Run] = {}
        self._backend = backend
        self._streams = streams
        self._plans = plans
        self._clock = clock
        self._ended = ended
        self._running: _Running | None = None

    def start(self, grant: Grant) -> None:
        """Begin a step, or go on with a suspended one."""
        try:
            name = grant.step.step
            run = (
                self.suspended.pop(name)
                if grant.resumed
                else Run(self._backend, self._streams, self._plans, grant.step)
            )
        except Exception as error:
            self._ended(GrantEnded(grant.grant, as_failure(error, self._streams.shown(grant.step))))
            return
        self._running = running = _Running(grant, run, Meter(run, self._clock))
        gap_ns = self._backend.capabilities.gap_ns
        if gap_ns:
            self.ends_at = self._clock() + gap_ns
        else:
            self._next_segment(running)

    def ask_yield(self, grant: int, give_up: bool) -> None:
        """Raise the flag of a grant; one that has ended is no error."""
        running = self._running
        if running is not None and running.grant.grant == grant:
            running.yield_asked = True
            running.give_up = running.give_up or give_up

    def drop_suspended(self, step: str) -> None:
        """Free a suspended run."""
        self.suspended.pop(step).close()

    def segment_ended(self) -> None:
        """The clock has come to ``ends_at``: the next segment begins, or the grant ends."""
        running = self._running
        if running is None:
            raise RuntimeError("a segment ended on a device that runs nothing")
        segment = running.segment
        if segment is None:
            # The host's gap has passed; the device's time counts from here.
            running.meter = Meter(running.run, self._clock)
            self._next_segment(running)
            return
        running.meter.lap(segment)
        if running.yield_asked and running.run.ends_early:
            running.run.stop_early = True
            self._next_segment(running)
        elif not running.yield_asked or segment.last:
            self._next_segment(running)
        elif running.give_up:
            self._finish(running, Withdrawn(running.meter.measured()))
        elif self._backend.capabilities.suspend:
            self.suspended[running.grant.step.step] = running.run
            self._leave(running, Suspended(running.meter.measured()))
        else:
            self._next_segment(running)

    def _next_segment(self, running: _Running) -> None:
        try:
            segment = next(running.run.segments)
        except StopIteration:
            running.meter.end()
            self._finish(running, Finished(running.run.result, running.meter.measured()))
        except Exception as error:
            self._finish(running, as_failure(error, self._streams.shown(running.grant.step)))
        else:
            running.segment, self.ends_at = segment, self._clock() + segment.device_ns

    def _finish(self, running: _Running, outcome: Finished | Failed | Withdrawn) -> None:
        running.run.close()
        self._leave(running, outcome)

    def _leave(self, running: _Running, outcome: Finished | Suspended | Failed | Withdrawn) -> None:
        self._running, self.ends_at = None, NEVER
        self._ended(GrantEnded(running.grant.grant, outcome))
