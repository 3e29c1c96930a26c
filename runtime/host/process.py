"""The executor that runs grants in a child process, which may die at any moment and take nothing along.

Steps, samplers, KV and weights live in the child; requests and their tokens' way live here. A start and a recovery load
every model, always in one order: the load of the first one starts a child where there is none, and replaces the one
that is there when it is a ``repair``. When a child dies, each grant in flight ends once as lost, or the supervisor
hears of it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from ...actors.errors import CoresidentError, DeviceLost, InvalidRequest
from ...actors.messages import DeviceFault, Failed, Finished, GrantEnded, Suspended, Withdrawn
from ...actors.work import Grant, LoadWork, StoreWork, Work
from ..backends.contract import Sampler
from ..backends.prefix_file import remove_unfinished
from ..logged import Logged, complain, inform
from ..models.sampling import GreedySampler, SeededSampler
from ..worker.flat import Body
from ..worker.frames import FrameInvalid
from ..worker.messages import ended_of, error_of, load_fields, sampler_body, step_body, tokens_of
from .executor import ExecutorStatistics, Outcome, Post, as_failure
from .flights import Flight, sampled_in
from .groups import raise_only
from .steps import Streams
from .watchdog import Watchdog
from .worker_process import WorkerProcess
from .worker_setup import WorkerSetup, open_worker


class ProcessExecutor:
    """An :class:`~.executor.Executor` over worker processes, one at a time."""

    def __init__(
        self,
        setup: WorkerSetup,
        streams: Streams,
        post: Post,
        watchdog: Watchdog,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._setup = setup
        self._streams = streams
        self._post = post
        self._watchdog = watchdog
        self._flights: dict[int, Flight] = {}
        self._commands = trio.open_memory_channel[Callable[[], Awaitable[None]]](float("inf"))
        self._worker: WorkerProcess | None = None
        self._loaded: set[str] = set()
        self._samplers: dict[str, Sampler] = {}
        self._writing: dict[str, str] = {}
        self._starts = 0
        self._stopping = False
        self._nursery: trio.Nursery | None = None

    # --- the host's side ----------------------------------------------------------------------------------------

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def running(self) -> AsyncIterator[None]:
        """Grants are taken inside. Afterwards there is no child, no pipe, and no file that was made for it."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                carried = trio.Event()
                nursery.start_soon(self._carry, carried)
                nursery.start_soon(self._watchdog.watch, self._hung)
                try:
                    yield
                finally:
                    await self._stop(carried)
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_only(group)

    @property
    def alive(self) -> bool:
        return self._worker is not None and self._worker.alive

    def statistics(self) -> ExecutorStatistics:
        worker = self._worker
        return ExecutorStatistics("process", worker.pid if worker else None, self.alive, self._starts)

    def check_sampler(self, sampler: Sampler) -> None:
        if not isinstance(sampler, GreedySampler | SeededSampler):
            raise InvalidRequest(
                f"sampler {type(sampler).__name__} can't be sent to a worker process, only SamplingParams can: "
                'give those, or set device.executor to "thread"',
                field="sampler",
                value=type(sampler).__name__,
            )

    def run(self, grant: Grant) -> None:
        flight = self._flights[grant.grant] = Flight(grant)
        self._watchdog.begin(grant)
        self._command(partial(self._send_step, flight))

    def ask_yield(self, grant: int, give_up: bool) -> None:
        flight = self._flights.get(grant)
        if flight is None:
            return
        if give_up and not flight.sent:
            self._end(grant, Withdrawn())
        self._tell(self._worker, {"kind": "yield", "id": grant, "give_up": give_up})

    def drop_suspended(self, step: str) -> None:
        self._tell(self._worker, {"kind": "drop_suspended", "id": 0, "step": step})

    def drop_retained(self, model: str, handle: int) -> None:
        self._tell(self._worker, {"kind": "drop_retained", "id": 0, "model": model, "handle": handle})

    def unload(self, model: str) -> None:
        self._tell(self._worker, {"kind": "unload", "id": 0, "model": model})

    # --- in order, one after the other --------------------------------------------------------------------------

    def _command(self, command: Callable[[], Awaitable[None]]) -> None:
        self._commands[0].send_nowait(command)

    def _tell(self, worker: WorkerProcess | None, body: Body) -> None:
        """What is said to one child means nothing to the next."""
        if worker is not None:
            self._command(partial(worker.send, body))

    @trio.lowlevel.enable_ki_protection
    async def _carry(self, carried: trio.Event) -> None:
        try:
            async for command in self._commands[1]:
                await command()
        finally:
            carried.set()

    async def _send_step(self, flight: Flight) -> None:
        grant, work = flight.grant, flight.grant.step.work
        try:
            body = step_body(grant)
            worker = self._worker
            if isinstance(work, LoadWork):
                worker = await self._worker_for(work)
                weights = work.weights or work.model not in self._loaded
                plan, manifest = self._setup.plans[work.model], self._setup.manifests.get(work.model, ())
                body |= {"weights": weights, **load_fields(plan, manifest)}
            if worker is None or worker is not self._worker:
                # That the device is lost was told already, or is told by the failed load: once is enough.
                self._end(grant.grant, Failed(DeviceLost("there is no worker process; a retry or a repair starts one")))
            elif grant.grant in self._flights:
                # From here on the end of the worker is the end of the grant, also when it has just died.
                flight.sent = True
                if isinstance(work, StoreWork):
                    self._writing[grant.step.step] = work.file.path
                await self._send_samplers(worker, work)
                await worker.send(body)
        except CoresidentError as error:
            self._end(grant.grant, as_failure(error))

    async def _worker_for(self, work: LoadWork) -> WorkerProcess | None:
        """The child for a load: perhaps a new one, if it is the first of a start or a recovery."""
        worker = self._worker
        if work.model != self._setup.first:
            return worker
        if worker is not None and worker.alive and not work.repair:
            return worker
        if worker is not None:
            await worker.close(self._setup.grace)
        self._loaded, self._samplers = set(), {}
        environment = await trio.to_thread.run_sync(self._setup.environment, work.repair)
        self._worker = worker = await WorkerProcess.start(self._setup.command, environment, self._heard)
        self._starts += 1
        inform(Logged.WORKER_STARTED, pid=worker.pid, starts=self._starts)
        if self._nursery is None:
            raise RuntimeError("a worker is started by an executor that does not run")
        self._nursery.start_soon(worker.supervise, self._lost)
        await open_worker(worker, self._setup)
        return worker

    async def _send_samplers(self, worker: WorkerProcess, work: Work) -> None:
        """What the child has to know of the requests of a step; it forgets those that have ended."""
        for request in [request for request in self._samplers if not self._streams.is_open(request)]:
            del self._samplers[request]
            await worker.send({"kind": "forget", "id": 0, "request": request})
        for request in sampled_in(work):
            sampler = self._streams.sampler(request)
            if self._samplers.get(request) is not sampler and isinstance(sampler, GreedySampler | SeededSampler):
                self._samplers[request] = sampler
                await worker.send(sampler_body(request, sampler.params))

    # --- what comes back ----------------------------------------------------------------------------------------

    async def _heard(self, body: Body) -> None:
        """A message of the child. Raises ``FrameInvalid``, which is the child's end."""
        flight = self._flights.get(body["id"])
        match body["kind"]:
            case "tokens":
                if flight is not None and self._worker is not None:
                    await self._worker.send(flight.judge(self._streams, tokens_of(body)))
            case "ended":
                outcome = ended_of(body)
                if flight is not None:
                    self._end(body["id"], flight.outcome(outcome))
            case "error":
                if flight is None:
                    raise FrameInvalid(f"the worker refused a message: {error_of(body).message}")
                self._end(body["id"], as_failure(error_of(body)))
            case "fault":
                error = error_of(body)
                # What fails in a child that is told to go is no fault of the next one, which a repair may be starting.
                if self._worker is not None and not self._worker.closing:
                    self._post("supervisor", DeviceFault(error))
            case kind:
                raise FrameInvalid(f"frame kind {kind!r} of the worker is not known")

    def _end(self, grant: int, outcome: Outcome) -> None:
        """A grant ends, once; after a stop it was given up, whatever comes in."""
        flight = self._flights.pop(grant, None)
        if flight is None:
            return
        self._watchdog.end(grant)
        work = flight.grant.step.work
        if not isinstance(outcome, Suspended):
            self._writing.pop(flight.grant.step.step, None)
        if isinstance(work, LoadWork) and isinstance(outcome, Finished):
            self._loaded.add(work.model)
        if isinstance(outcome, Failed) and outcome.sticky:
            # A request that runs again begins with a sampler in its first state.
            self._samplers.clear()
        if self._stopping:
            outcome = Withdrawn(None if isinstance(outcome, Failed) else outcome.measured)
        self._post("device", GrantEnded(grant, outcome))

    def _lost(self, worker: WorkerProcess, error: DeviceLost) -> None:
        """A child has been reaped. Nobody is told of one that was asked to go."""
        if worker is self._worker:
            self._worker = None
        while self._writing:
            remove_unfinished(self._writing.popitem()[1], worker.pid)
        if worker.closing or self._stopping:
            inform(Logged.WORKER_ENDED, pid=worker.pid, how=error.message)
            return
        complain(Logged.WORKER_LOST, pid=worker.pid, error=error.message)
        if not self._flights:
            self._post("supervisor", DeviceFault(error))
        for grant, flight in list(self._flights.items()):
            # A load that was not sent is on its way to the next child, or is told by the question that it waits for.
            if flight.sent or not isinstance(flight.grant.step.work, LoadWork):
                self._end(grant, Failed(error, sticky=True))

    def _hung(self, grant: Grant, error: DeviceLost) -> None:
        """A thread inside of the child may stand anywhere: only the whole child can be ended."""
        if self._worker is None:
            self._end(grant.grant, Failed(error, sticky=True))
        else:
            self._worker.kill(error)

    async def _stop(self, carried: trio.Event) -> None:
        with trio.CancelScope(shield=True):
            self._stopping = True
            self._commands[0].close()
            with trio.move_on_after(self._setup.grace):
                await carried.wait()
            if self._worker is not None:
                await self._worker.close(self._setup.grace)
            for grant in list(self._flights):
                self._end(grant, Withdrawn())
