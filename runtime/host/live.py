"""A running scheduler at the level of tokens: actors in a nursery host, opened ready and closed empty.

The front door adds text to this; a replay submits recorded token counts to it directly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import attrs
import trio

from ...actors.effects import Report
from ...actors.errors import Closed, CoresidentError, DeviceLost, InvalidRequest
from ...actors.events import ReadinessChanged
from ...actors.messages import (
    Cancel,
    FetchPrefix,
    PinConversation,
    Recover,
    ReleaseConversation,
    Start,
    StorePrefix,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
)
from ...actors.queue import DeviceStatistics
from ...actors.scoring import DecisionStatistics
from ...actors.sequences import GenerationStatistics
from ...actors.supervisor import RECOVERIES, Readiness
from .artifacts import Holding
from .assembly import DECISION, GENERATION, Assembly
from .executor import DeviceExecutor, ExecutorFactory, ExecutorStatistics
from .executors import executor_factory
from .groups import raise_only
from .nursery import Listener, NurseryHost
from .observers import Delivery, Observer
from .steps import Stream


@attrs.frozen
class Statistics:
    """Everything countable, frozen: the device with its ledger, both roles, readiness, executor, and open streams."""

    device: DeviceStatistics
    generation: GenerationStatistics
    decision: DecisionStatistics | None
    readiness: Readiness
    executor: ExecutorStatistics
    streams: int


class _ReadinessWatch:
    """Wakes those who wait for the supervisor to say something new."""

    def __init__(self) -> None:
        self.changed = trio.Event()

    def delivered(self, delivery: Delivery) -> None:
        for effect in delivery.effects:
            if isinstance(effect, Report) and isinstance(effect.event, ReadinessChanged):
                self.changed.set()
                self.changed = trio.Event()

    def token(self, request: str, index: int, at: int) -> None:
        return

    def dropped(self, error: Exception) -> None:
        raise error


class LiveRuntime:
    """Submits requests to a nursery host. All methods are for the Trio thread."""

    def __init__(self, assembly: Assembly, host: NurseryHost, watch: _ReadinessWatch) -> None:
        self.assembly = assembly
        self.host = host
        self._watch = watch
        self._count = 0
        self._open: set[str] = set()
        self._cancellable: set[str] = set()

    def new_id(self, prefix: str) -> str:
        """A request id that this runtime has not given yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    def generate(self, message: SubmitGeneration, stream: Stream, listener: Listener) -> None:
        """Submit a generation request.

        Raises ``Overloaded``, ``Closed``, or ``InvalidRequest`` for the id of an open request or a sampler that can't
        run in a worker process; other refusals come as an event.
        """
        self._check_new(message.request)
        self.host.open_stream(message.request, stream)
        self._submit(GENERATION, message, listener)

    def decide(self, message: SubmitDecision, listener: Listener) -> None:
        """Submit a decision request. Raises like ``generate``, and ``InvalidRequest`` without a decision model."""
        if self.assembly.decision is None:
            raise InvalidRequest("no decision model is configured: add [decision] to the configuration")
        self._check_new(message.request)
        self._submit(DECISION, message, listener)

    def prepare(self, message: SubmitPreparation, listener: Listener) -> None:
        """Submit a preparation. Raises like ``generate``."""
        self._check_new(message.request)
        self._submit(GENERATION, message, listener)

    def _check_new(self, request: str) -> None:
        """An open request keeps its stream and its listener, whatever else comes under its id."""
        if request in self._open:
            raise InvalidRequest(f"request {request} is already open: use a new id", request=request)

    def _submit(
        self,
        actor: str,
        message: SubmitGeneration | SubmitDecision | SubmitPreparation | StorePrefix | FetchPrefix,
        listener: Listener,
    ) -> None:
        self._open.add(message.request)
        self._cancellable.add(message.request)
        self.host.listen(message.request, listener)
        try:
            self.host.send(actor, message)
        except CoresidentError:
            self.finished(message.request)
            raise

    def checkpoint(self, message: StorePrefix | FetchPrefix, listener: Listener) -> None:
        """Write a prefix to a file, or read one back. Raises like ``generate``."""
        self._submit(GENERATION, message, listener)

    def tell(self, message: PinConversation | ReleaseConversation) -> None:
        """Say something about what is retained. Raises ``Overloaded`` or ``Closed``."""
        self.host.send(GENERATION, message)

    def cancel(self, role: str, request: str, reason: str = "cancelled") -> None:
        """Ask for a request's end, once, however full the mailbox is; one that is not open is no error."""
        if request in self._cancellable:
            self._cancellable.remove(request)
            self.host.send_anyway(role, Cancel(request, reason))

    def finished(self, request: str) -> None:
        """The client has seen the request's end: its stream and listener go."""
        self._open.discard(request)
        self._cancellable.discard(request)
        self.host.forget(request)
        self.host.streams.close(request)

    def readiness(self) -> Readiness:
        """The supervisor's view of this moment, or the next one when the device died and it has not heard of that."""
        now = self.assembly.supervisor.readiness()
        if not now.ready or self.host.executor.alive:
            return now
        error = DeviceLost("what runs the steps has just ended, or hangs; a retry or a repair starts it again")
        return Readiness(now.revision + 1, "faulted", 0, (), error)

    def statistics(self) -> Statistics:
        """A frozen view of everything."""
        assembly = self.assembly
        return Statistics(
            device=assembly.device.statistics(),
            generation=assembly.generation.statistics(),
            decision=assembly.decision.statistics() if assembly.decision else None,
            readiness=self.readiness(),
            executor=self.host.executor.statistics(),
            streams=len(self.host.streams),
        )

    async def recover(self, action: str) -> Readiness:
        """Carry out ``retry`` or ``repair`` and wait for what comes of it.

        Raises ``InvalidRequest`` when the action is not open now, and the fault again when it persists.
        """
        while (now := self.readiness()).state == "faulted" and not now.actions:
            await self._watch.changed.wait()
        if action not in RECOVERIES or action not in now.actions:
            raise InvalidRequest(_why_not(action, now), action=action)
        changed = self._watch.changed
        self.host.send("supervisor", Recover(action))
        await changed.wait()
        return await self.settled()

    async def settled(self) -> Readiness:
        """Wait until the scheduler is ready. Raises the fault when it becomes faulted instead."""
        while (now := self.readiness()).state in ("new", "starting", "recovering"):
            await self._watch.changed.wait()
        if not now.ready:
            raise now.error.again() if now.error else Closed(f"the scheduler is {now.state}: open another one")
        return now


def _why_not(action: str, now: Readiness) -> str:
    if action not in RECOVERIES:
        return f"there is no way back named {action!r}: use {' or '.join(RECOVERIES)}"
    advice = {"ready": "go on", "closing": "open another one", "closed": "open another one"}
    what_to_do = advice.get(now.state, "wait until it is ready")
    return f"there is nothing to {action}: the scheduler is {now.state}; {what_to_do}"


@asynccontextmanager
async def open_live(
    assembly: Assembly, observers: Iterable[Observer] = (), executor: ExecutorFactory | None = None
) -> AsyncIterator[LiveRuntime]:
    """Run the assembly's actors; ready inside, everything ended and every byte returned afterwards.

    ``executor`` makes what runs the steps; without one, the configuration says which.

    The partition is registered and the models are leased before, and until, anything is on the device.

    Raises ``BudgetExceeded`` where the physical device has no room for the partition beside the others, and the fault
    that kept it from becoming ready. What is raised inside comes out as itself.
    """
    watch = _ReadinessWatch()
    make = executor or executor_factory(assembly)
    host = NurseryHost(assembly.actors, make, assembly.config.limits.mailbox, observers)
    host.observers.add(watch, tokens=False)
    holding = Holding(lambda: host.executor.statistics().pid)
    host.observers.add(holding.watch, tokens=False)
    runtime = LiveRuntime(assembly, host, watch)
    try:
        await trio.to_thread.run_sync(holding.take, assembly)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.run)
            try:
                host.send("supervisor", Start())
                await runtime.settled()
                yield runtime
            finally:
                host.close()
    except BaseExceptionGroup as group:
        raise_only(group)
    finally:
        holding.release(host.executor.left_behind if isinstance(host.executor, DeviceExecutor) else None)
