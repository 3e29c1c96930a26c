"""The virtual host: the same actors under a virtual clock, on a modelled device.

Rule 1: at one instant the running segment ends first; then timers and outside calls come in order; only then is mail
delivered, until none is left. Rule 2: outside arrivals are delivered by ``(class, actor, sequence)``, and before mail
between actors; each mailbox keeps the order of its actors' mail. Rule 3: the device controller hears last, so it
chooses when everything that arrives at an instant has arrived. No Trio, no threads, no wall clock: two runs of one
input are equal to the byte.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

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
from ...actors.events import RequestEvent, ScheduleEvent
from ...actors.messages import Message, SubmitDecision, SubmitGeneration, SubmitPreparation
from ...policies.views import WorkClass
from ..backends.contract import Backend, PlanRequest
from .observers import Delivery, Observer, Observers
from .steps import Streams
from .virtual_device import NEVER, VirtualDevice

Listener: TypeAlias = Callable[[RequestEvent, int], None]
DEVICE = "device"
_TIMER, _CALL = range(2)


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
        self.observers = Observers(observers)
        self.streams = Streams(self._token)
        self._device_mail: deque[Message] = deque()
        self._actors = {actor.name: actor for actor in actors}
        self._backend = backend
        self._device = VirtualDevice(backend, self.streams, plans, self.clock, self._device_mail.append)
        self._heap: list[tuple[int, int, int, Callable[[], None]]] = []
        self._outside: list[tuple[int, str, int, Message]] = []
        self._urgency: dict[str, int] = {}
        self._mail: deque[tuple[str, Message]] = deque()
        self._sequence = 0
        self._delivered = 0
        self._timers: dict[str, int] = {}
        self._forgotten: set[int] = set()
        self._listener: Listener | None = None
        self._reported: dict[type[ScheduleEvent], Callable[[Any, int], None]] = {}
        self._vain = 0
        self._vain_limit = NEVER
        self._vain_listener: Callable[[str], None] | None = None
        self._carry: Mapping[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            RunGrant: self._start,
            AskYield: lambda effect: self._device.ask_yield(effect.grant, effect.give_up),
            Notify: self._notify,
            Report: self._report,
            SetTimer: self._set_timer,
            CancelTimer: lambda effect: self._forget(effect.key),
            DropSuspended: lambda effect: self._device.drop_suspended(effect.step),
            DropRetained: lambda effect: self._backend.drop(effect.model, effect.handle),
            UnloadModel: lambda effect: self._backend.unload(effect.model),
            Stop: self._stop,
        }
        self.stopped = False

    @property
    def suspended(self) -> int:
        """Chunks that are suspended now."""
        return len(self._device.suspended)

    def clock(self) -> int:
        """Virtual nanoseconds."""
        return self.now

    def listen_all(self, listener: Listener) -> None:
        """Call ``listener(event, at)`` for every request event."""
        self._listener = listener

    def send(self, to: str, message: Message) -> None:
        """Put a message from outside into a mailbox at this instant. Raises ``Closed`` after the end.

        More urgent requests of one instant go first. What belongs to no class stays behind what its mailbox has got.
        """
        if self.stopped:
            raise Closed("the virtual host has stopped: build another one")
        self._vain = 0
        urgency = self._urgency.get(to, 0) if (given := _class_of(message)) is None else int(given)
        self._urgency[to] = max(urgency, self._urgency.get(to, 0))
        self._sequence += 1
        heapq.heappush(self._outside, (urgency, to, self._sequence, message))

    def listen(self, kind: type[ScheduleEvent], listener: Callable[[Any, int], None]) -> None:
        """Call ``listener(event, at)`` for every schedule event of a kind."""
        self._reported[kind] = listener

    def in_vain(self, limit: int, listener: Callable[[str], None]) -> None:
        """Call ``listener(key)`` once ``limit`` timers have rung with no grant, and nothing from outside, between."""
        self._vain_limit, self._vain_listener = limit, listener

    def call_at(self, at: int, function: Callable[[], None]) -> None:
        """Call a function at a virtual time, not before now."""
        self._push(max(at, self.now), _CALL, function)

    def run(self, until: int | None = None) -> None:
        """Go on until nothing is left to happen, the actors stopped, or the clock would pass ``until``."""
        limit = NEVER if until is None else until
        self._settle()
        while not self.stopped and (at := self._next_at()) < NEVER:
            if at > limit:
                self.now = max(self.now, limit)
                return
            self.now = at
            self._settle()

    # --- instants -----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let happen what is due at this instant, and deliver what comes of it."""
        while self._device.ends_at == self.now:
            self._device.segment_ended()
        while self._heap and self._heap[0][0] == self.now:
            self._happen()
        if self._device_mail or self._mail or self._outside:
            self._deliver()

    def _next_at(self) -> int:
        """The next instant at which anything happens; forgotten timers are not anything."""
        while self._heap and self._heap[0][2] in self._forgotten:
            self._forgotten.remove(heapq.heappop(self._heap)[2])
        at = self._heap[0][0] if self._heap else NEVER
        return min(at, self._device.ends_at)

    def _happen(self) -> None:
        _, _, sequence, function = heapq.heappop(self._heap)
        if sequence in self._forgotten:
            self._forgotten.remove(sequence)
        else:
            function()

    def _push(self, at: int, priority: int, function: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at, priority, self._sequence, function))

    # --- deliveries ---------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Deliver what has been sent at this instant, until nothing is left."""
        while True:
            if self._outside:
                _, to, _, message = heapq.heappop(self._outside)
                if not self._outside:
                    self._urgency.clear()
            elif self._mail:
                to, message = self._mail.popleft()
            elif self._device_mail:
                to, message = DEVICE, self._device_mail.popleft()
            else:
                return
            self._delivered += 1
            effects = self._actors[to].handle(message, self.now)
            self.observers.delivered(Delivery(self._delivered, self.now, to, message, tuple(effects)))
            for effect in effects:
                carry = self._carry.get(type(effect))
                if carry is not None:
                    carry(effect)

    def _post(self, to: str, message: Message) -> None:
        if to == DEVICE:
            self._device_mail.append(message)
        else:
            self._mail.append((to, message))

    def _send(self, effect: Send) -> None:
        self._post(effect.to, effect.message)

    def _notify(self, effect: Notify) -> None:
        if self._listener is not None:
            self._listener(effect.event, self.now)

    def _report(self, effect: Report) -> None:
        listener = self._reported.get(type(effect.event))
        if listener is not None:
            listener(effect.event, self.now)

    def _set_timer(self, effect: SetTimer) -> None:
        self._forget(effect.key)

        def ring() -> None:
            del self._timers[effect.key]
            self._post(effect.to, effect.message)
            self._vain += 1
            if self._vain >= self._vain_limit and self._vain_listener is not None:
                self._vain_listener(effect.key)

        self._push(max(effect.at, self.now), _TIMER, ring)
        self._timers[effect.key] = self._sequence

    def _forget(self, key: str) -> None:
        """What is forgotten never happens, so it moves no clock either."""
        sequence = self._timers.pop(key, None)
        if sequence is not None:
            self._forgotten.add(sequence)

    def _start(self, effect: RunGrant) -> None:
        self._vain = 0
        self._device.start(effect.grant)

    def _stop(self, effect: Stop) -> None:
        self.stopped = True

    def _token(self, request: str, index: int) -> None:
        self.observers.token(request, index, self.now)


def _class_of(message: Message) -> WorkClass | None:
    """The work class of a request; ``None`` for what asks for no work."""
    match message:
        case SubmitDecision():
            return WorkClass.DECISION
        case SubmitGeneration(work_class=work_class):
            return work_class
        case SubmitPreparation():
            return WorkClass.PREPARATION
        case _:
            return None
