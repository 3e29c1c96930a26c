"""The virtual host: the same actors under a virtual clock, on a modelled device.

A heap of ``(at, priority, sequence)`` holds what is to happen. At one instant segments end first, then timers and
outside arrivals come in order, then messages between actors are delivered until nothing is left at that instant. No
Trio, no threads, no wall clock: two runs of one input are equal to the byte.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from ...actors.effects import (
    Actor,
    AskYield,
    CancelTimer,
    DropRetained,
    DropSuspended,
    Effect,
    Notify,
    Report,
    RunGrant,
    Send,
    SetTimer,
    Stop,
    UnloadModel,
)
from ...actors.errors import Closed
from ...actors.events import RequestEvent
from ...actors.messages import Failed, Finished, GrantEnded, Message, Suspended, Withdrawn
from ...actors.work import Grant
from ..backends.contract import Backend, PlanRequest, Segment
from .executor import Meter, as_failure
from .observers import Delivery, Observer, Observers
from .steps import Run, Streams

Listener: TypeAlias = Callable[[RequestEvent, int], None]
_SEGMENT, _TIMER, _CALL = range(3)


@attrs.define
class _Device:
    """The grant that holds the modelled device."""

    grant: Grant
    run: Run
    meter: Meter
    yield_asked: bool = False
    give_up: bool = False


class VirtualHost:
    """Runs actors in virtual time. ``now`` is integer nanoseconds since 0."""

    def __init__(
        self,
        actors: Iterable[Actor],
        backend: Backend,
        plans: Mapping[str, PlanRequest],
        observers: Iterable[Observer] = (),
    ) -> None:
        self.now = 0
        self.streams = Streams(lambda request, index: self.observers.token(request, index, self.now))
        self.observers = Observers(observers)
        self._actors = {actor.name: actor for actor in actors}
        self._backend = backend
        self._plans = plans
        self._heap: list[tuple[int, int, int, Callable[[], None]]] = []
        self._mail: deque[tuple[str, Message]] = deque()
        self._sequence = 0
        self._delivered = 0
        self._device: _Device | None = None
        self._suspended: dict[str, Run] = {}
        self._timers: dict[str, int] = {}
        self._forgotten: set[int] = set()
        self._listener: Listener | None = None
        self.stopped = False

    @property
    def suspended(self) -> int:
        """Chunks that are suspended now."""
        return len(self._suspended)

    def clock(self) -> int:
        """Virtual nanoseconds."""
        return self.now

    def listen_all(self, listener: Listener) -> None:
        """Call ``listener(event, at)`` for every request event."""
        self._listener = listener

    def send(self, to: str, message: Message) -> None:
        """Put a message into a mailbox at this instant. Raises ``Closed`` after the end."""
        if self.stopped:
            raise Closed("the virtual host has stopped: build another one")
        self._mail.append((to, message))

    def call_at(self, at: int, function: Callable[[], None]) -> None:
        """Call a function at a virtual time, not before now."""
        self._push(max(at, self.now), _CALL, function)

    def run(self, until: int | None = None) -> None:
        """Go on until nothing is left to happen, the actors stopped, or the clock would pass ``until``."""
        self._drain()
        while self._coming() and not self.stopped:
            if until is not None and self._heap[0][0] > until:
                self.now = max(self.now, until)
                return
            self.now, _, _, function = heapq.heappop(self._heap)
            function()
            if not (self._heap and self._heap[0][:2] == (self.now, _SEGMENT)):
                self._drain()

    # --- deliveries ---------------------------------------------------------------------------------------------

    def _push(self, at: int, priority: int, function: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at, priority, self._sequence, function))

    def _drain(self) -> None:
        while self._mail:
            to, message = self._mail.popleft()
            self._delivered += 1
            effects = self._actors[to].handle(message, self.now)
            self.observers.delivered(Delivery(self._delivered, self.now, to, message, tuple(effects)))
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self._mail.append((to, message))
            case RunGrant(grant):
                self._start(grant)
            case AskYield(grant, give_up):
                self._ask_yield(grant, give_up)
            case Notify(event):
                if self._listener is not None:
                    self._listener(event, self.now)
            case SetTimer(key, when, to, message):
                self._set_timer(key, when, to, message)
            case CancelTimer(key):
                self._cancel_timer(key)
            case DropSuspended(step):
                self._suspended.pop(step).close()
            case DropRetained(model, handle):
                self._backend.drop(model, handle)
            case UnloadModel(model):
                self._backend.unload(model)
            case Stop():
                self.stopped = True
            case Report():
                pass

    def _set_timer(self, key: str, when: int, to: str, message: Message) -> None:
        self._cancel_timer(key)

        def ring() -> None:
            del self._timers[key]
            self._mail.append((to, message))

        self._push(max(when, self.now), _TIMER, ring)
        self._timers[key] = self._sequence

    def _cancel_timer(self, key: str) -> None:
        """What is forgotten never happens, so it moves no clock either."""
        sequence = self._timers.pop(key, None)
        if sequence is not None:
            self._forgotten.add(sequence)

    def _coming(self) -> bool:
        """Whether anything is left to happen; forgotten timers are not."""
        while self._heap and self._heap[0][2] in self._forgotten:
            self._forgotten.remove(heapq.heappop(self._heap)[2])
        return bool(self._heap)

    # --- the modelled device ------------------------------------------------------------------------------------

    def _start(self, grant: Grant) -> None:
        try:
            name = grant.step.step
            run = (
                self._suspended.pop(name)
                if grant.resumed
                else Run(self._backend, self.streams, self._plans, grant.step)
            )
        except Exception as error:
            self._mail.append(("device", GrantEnded(grant.grant, as_failure(error))))
            return
        self._device = _Device(grant, run, Meter(run, self.clock))
        self._next_segment(self._device)

    def _ask_yield(self, grant: int, give_up: bool) -> None:
        device = self._device
        if device is not None and device.grant.grant == grant:
            device.yield_asked = True
            device.give_up = device.give_up or give_up

    def _next_segment(self, device: _Device) -> None:
        """Begin the next segment; its end is an event ``device_ns`` later."""
        try:
            segment = next(device.run.segments)
        except StopIteration:
            device.meter.end()
            self._finish(device, Finished(device.run.result, device.meter.measured()))
        except Exception as error:
            self._finish(device, as_failure(error))
        else:
            self._push(self.now + segment.device_ns, _SEGMENT, lambda: self._segment_ended(device, segment))

    def _segment_ended(self, device: _Device, segment: Segment) -> None:
        device.meter.lap(segment)
        if device.yield_asked and device.run.ends_early:
            device.run.stop_early = True
            self._next_segment(device)
        elif not device.yield_asked or segment.last:
            self._next_segment(device)
        elif device.give_up:
            self._finish(device, Withdrawn(device.meter.measured()))
        elif self._backend.capabilities.suspend:
            self._suspended[device.grant.step.step] = device.run
            self._leave(device, Suspended(device.meter.measured()))
        else:
            self._next_segment(device)

    def _finish(self, device: _Device, outcome: Finished | Failed | Withdrawn) -> None:
        device.run.close()
        self._leave(device, outcome)

    def _leave(self, device: _Device, outcome: Finished | Suspended | Failed | Withdrawn) -> None:
        self._device = None
        self._mail.append(("device", GrantEnded(device.grant.grant, outcome)))
