"""Executors: what hosts ask to run grants, and the thread that owns one device and runs one grant at a time.

A host knows its executor as :class:`Executor`: a thread of its own process (``threaded``) or a child process
(``process``), in which the same thread does the same. Everything that touches the backend after planning runs on this
thread. Commands are taken in order; the yield flag of the running grant is looked at after every segment. Outcomes go
back through ``post(actor, message)``, which must be safe to call from this thread; housekeeping that fails is logged,
as at the end nobody may be left to hear of it, and makes the supervisor hear of a fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from typing import Protocol, TypeAlias

import attrs

from ...actors.errors import BackendFault, CoresidentError, DeviceLost
from ...actors.messages import DeviceFault, Failed, Finished, GrantEnded, Message, Suspended, Withdrawn
from ...actors.work import Grant, Measured
from ..backends.contract import Backend, PlanRequest, Sampler, Segment
from ..logged import Logged, complain
from .steps import Run, Streams, Takers

DEVICE_THREAD = "coresident-device"
Post: TypeAlias = Callable[[str, Message], None]
Outcome: TypeAlias = Finished | Suspended | Withdrawn | Failed


@attrs.frozen
class ExecutorStatistics:
    """``kind`` is ``thread`` or ``process``; ``pid`` that of the process that has the device, ``None`` without one.

    ``starts`` counts how often a thread or a process was started; ``alive`` is whether it can run a step now.
    """

    kind: str
    pid: int | None
    alive: bool
    starts: int


class Executor(Protocol):
    """Runs grants for a host. All methods are for the host's thread, and none of them waits.

    Each grant ends in one ``GrantEnded`` to the device actor, whatever happens to what runs it.
    """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Started inside; afterwards everything has ended, in bounded time."""
        ...

    @property
    def alive(self) -> bool:
        """Whether a step can be run at this moment; false as soon as it is false."""
        ...

    def statistics(self) -> ExecutorStatistics: ...

    def check_sampler(self, sampler: Sampler) -> None:
        """Raises ``InvalidRequest`` for a sampler that can't run where the steps run."""
        ...

    def run(self, grant: Grant) -> None:
        """Run a step, or go on with a suspended one."""
        ...

    def ask_yield(self, grant: int, give_up: bool) -> None:
        """Raise the flag of a grant; one that has ended is no error."""
        ...

    def drop_suspended(self, step: str) -> None:
        """Free a suspended run."""
        ...

    def drop_retained(self, model: str, handle: int) -> None:
        """Free retained storage."""
        ...

    def unload(self, model: str) -> None:
        """Free a model."""
        ...


ExecutorFactory: TypeAlias = Callable[[Streams, Post, Callable[[], int]], Executor]


@attrs.define
class Flags:
    """Set by the host, read by the thread after each segment; ``run`` is what the grant runs, once it does."""

    yield_asked: bool = False
    give_up: bool = False
    run: Run | None = None


def as_failure(error: Exception, shown: tuple[str, ...] = ()) -> Failed:
    """A backend's exception as a typed outcome; only a lost device is sticky. ``shown`` had tokens of the step."""
    if isinstance(error, DeviceLost):
        return Failed(error, True, shown)
    if isinstance(error, CoresidentError):
        return Failed(error)
    fault = BackendFault(f"the step raised {type(error).__name__}: {error}")
    fault.__cause__ = error
    return Failed(fault)


class DeviceExecutor:
    """Runs grants of one backend on a dedicated thread."""

    def __init__(
        self,
        backend: Backend,
        streams: Takers,
        plans: Mapping[str, PlanRequest],
        post: Post,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._backend = backend
        self._streams = streams
        self._plans = plans
        self._post = post
        self._clock = clock
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._flags: dict[int, Flags] = {}
        self._suspended: dict[str, Run] = {}
        self._thread = threading.Thread(target=self._work, name=DEVICE_THREAD, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the commands already given and wait for it, at most for the running segment."""
        self.finish()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def left_behind(self) -> threading.Thread | None:
        """The thread, where it runs on though it was told to end."""
        return self._thread if self._thread.is_alive() else None

    def end_within(self, seconds: float) -> bool:
        """Let the thread end, and wait for it that long. Whether it has ended."""
        self.finish()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Let the thread end after the commands already given."""
        for flags in list(self._flags.values()):
            flags.give_up = flags.yield_asked = True
        self._commands.put(None)

    def run(self, grant: Grant) -> None:
        """Run a step, or go on with a suspended one; ends in one ``GrantEnded``."""
        flags = self._flags[grant.grant] = Flags()
        self._commands.put(lambda: self._run(grant, flags))

    def ask_yield(self, grant: int, give_up: bool) -> None:
        """Raise the flag of a grant; one that has ended is no error."""
        flags = self._flags.get(grant)
        if flags is not None:
            flags.give_up = flags.give_up or give_up
            flags.yield_asked = True

    def drop_suspended(self, step: str) -> None:
        """Free a suspended run."""
        self._commands.put(lambda: self._suspended.pop(step).close())

    def drop_retained(self, model: str, handle: int) -> None:
        """Free retained storage."""
        self._commands.put(lambda: self._backend.drop(model, handle))

    def unload(self, model: str) -> None:
        """Free a model."""
        self._commands.put(lambda: self._backend.unload(model))

    # --- on the thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (command := self._commands.get()) is not None:
            try:
                command()
            except Exception as error:
                complain(Logged.HOUSEKEEPING_FAILED, error=repr(error))
                self._post("supervisor", DeviceFault(as_failure(error).error))
        for run in self._suspended.values():
            run.close()
        self._suspended.clear()

    def _run(self, grant: Grant, flags: Flags) -> None:
        outcome: Outcome
        try:
            outcome = self._advance(grant, flags)
        except Exception as error:
            outcome = as_failure(error)
        self._end(grant.grant, outcome)

    def _end(self, grant: int, outcome: Outcome) -> bool:
        """Say how a grant ended, once: also from another thread, for one that hangs here. Whether it had not ended."""
        ours = self._flags.pop(grant, None) is not None
        if ours:
            self._post("device", GrantEnded(grant, outcome))
        return ours

    def _advance(self, grant: Grant, flags: Flags) -> Finished | Suspended | Withdrawn:
        """Segments until the end or a yield; whatever is not suspended is closed."""
        name = grant.step.step
        run = flags.run = self._suspended.pop(name) if grant.resumed else self._begin(grant)
        meter = Meter(run, self._clock)
        keep = False
        try:
            for segment in run.segments:
                meter.lap(segment)
                if not flags.yield_asked:
                    continue
                if run.ends_early:
                    run.stop_early = True
                elif segment.last:
                    continue
                elif flags.give_up:
                    return Withdrawn(meter.measured())
                elif self._backend.capabilities.suspend:
                    keep = True
                    self._suspended[name] = run
                    return Suspended(meter.measured())
            meter.end()
            return Finished(run.result, meter.measured())
        finally:
            if not keep:
                run.close()

    def _begin(self, grant: Grant) -> Run:
        return Run(self._backend, self._streams, self._plans, grant.step)


class Meter:
    """Times segments of one grant."""

    def __init__(self, run: Run, clock: Callable[[], int]) -> None:
        self._run = run
        self._clock = clock
        self._last = clock()
        self._total = self._longest = self._segments = 0
        self._ended = False

    def lap(self, segment: Segment) -> None:
        """A segment has ended now."""
        self._ended = segment.last
        self._count()

    def end(self) -> None:
        """The step has ended now: what ran after its last segment is one more, unless nothing was left to compute."""
        if not self._ended:
            self._count()

    def _count(self) -> None:
        now = self._clock()
        device_ns, self._last = now - self._last, now
        self._segments += 1
        self._total += device_ns
        self._run.device_ns += device_ns
        self._longest = max(self._longest, device_ns)

    def measured(self) -> Measured:
        """What the grant used so far."""
        return Measured(
            workspace=self._run.workspace,
            device_ns=self._total,
            segments=self._segments,
            longest_segment_ns=self._longest,
            step_ns=self._run.device_ns,
        )
