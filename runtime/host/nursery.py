"""The nursery host: a Trio task and a bounded mailbox for each actor, one executor, timers.

A mailbox stamps each message with its order and time when the actor takes it; observers see every delivery, so the run
can be audited afterwards. Clients may only fill a mailbox up to its bound; actors answer each other above it, which is
bounded by the open requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

import attrs
import trio

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
from ...actors.errors import Closed, Overloaded
from ...actors.events import Refused, RequestEvent
from ...actors.messages import Close, Failed, GrantEnded, Message
from ...actors.work import Grant
from .executor import Executor, ExecutorFactory
from .groups import raise_only
from .observers import Delivery, Observer, Observers
from .steps import Stream, Streams

Listener: TypeAlias = Callable[[RequestEvent, int], None]
_BETWEEN_ACTORS = 65536


class NurseryHost:
    """Runs actors in one nursery. ``clock`` gives integer nanoseconds; timers assume it runs with Trio's."""

    def __init__(
        self,
        actors: Iterable[Actor],
        make_executor: ExecutorFactory,
        mailbox: int = 1024,
        observers: Iterable[Observer] = (),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.clock = clock
        self.streams = Streams(self._token_made)
        self.observers = Observers(observers)
        self._actors = {actor.name: actor for actor in actors}
        self._bound = mailbox
        self._channels = {name: trio.open_memory_channel[Message](mailbox + _BETWEEN_ACTORS) for name in self._actors}
        self.executor: Executor = make_executor(self.streams, self._post, clock)
        self._listeners: dict[str, Listener] = {}
        self._timers: dict[str, trio.CancelScope] = {}
        self._delivered = 0
        self._granted: Grant | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._stopped = False

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Run until the supervisor has closed everything, also when cancelled: ``close`` is what ends a host.

        The end is bounded by one segment of the step that runs. The executor has ended before this returns. What an
        actor or a listener raises is a defect that ends the host; it comes out as itself.
        """
        self._token = trio.lowlevel.current_trio_token()
        try:
            with trio.CancelScope(shield=True):
                async with self.executor.running():
                    await self._serve_all()
        except BaseExceptionGroup as group:
            raise_only(group)
        finally:
            self._stopped = True
            self._end_listeners()

    async def _serve_all(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for name in self._actors:
                    nursery.start_soon(self._serve, name)
        except BaseExceptionGroup as group:
            raise_only(group)
        finally:
            self._stopped = True
            self._nursery = None

    def open_stream(self, request: str, stream: Stream) -> None:
        """Take tokens for a request. Raises ``InvalidRequest`` for a sampler that can't run where the steps run."""
        self.executor.check_sampler(stream.sampler)
        self.streams.open(request, stream)

    def send(self, to: str, message: Message) -> None:
        """A client's message. Raises ``Overloaded`` when the mailbox is full, ``Closed`` when the host has ended."""
        if self._stopped:
            raise Closed("the scheduler is closed: open another one")
        sender = self._channels[to][0]
        waiting = sender.statistics().current_buffer_used
        if waiting >= self._bound:
            raise Overloaded(
                f"{waiting} messages wait for the {to} actor, the limit is {self._bound}: send fewer or later",
                waiting=waiting,
                limit=self._bound,
            )
        sender.send_nowait(message)

    def send_anyway(self, to: str, message: Message) -> None:
        """A message above the mailbox's bound, where open requests are the bound: cancels. Ignored after the end."""
        if not self._stopped:
            self._put(to, message)

    def listen(self, request: str, listener: Listener) -> None:
        """Call ``listener(event, at)`` for a request's events until it has ended or ``forget`` is called."""
        self._listeners[request] = listener

    @property
    def listening(self) -> int:
        """Requests that are listened for."""
        return len(self._listeners)

    def forget(self, request: str) -> None:
        """Stop listening; unknown requests are no error."""
        self._listeners.pop(request, None)

    def call(self, function: Callable[[], object]) -> None:
        """Run a function on the host's Trio thread soon, from any thread; a host that has ended ignores it."""
        if self._token is None or self._stopped:
            return
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            self._stopped = True

    def close(self) -> None:
        """Begin the end: open requests fail, models are unloaded, then ``run`` returns. Closing twice is no error."""
        self.send_anyway("supervisor", Close())

    # --- the loop -----------------------------------------------------------------------------------------------

    # An interrupt is for the client's task: in the middle of a delivery it would leave an actor between two states.
    @trio.lowlevel.enable_ki_protection
    async def _serve(self, name: str) -> None:
        async for message in self._channels[name][1]:
            self._deliver(name, message)

    def _deliver(self, name: str, message: Message) -> None:
        at = self.clock()
        self._delivered += 1
        effects = self._actors[name].handle(message, at)
        self.observers.delivered(Delivery(self._delivered, at, name, message, tuple(effects)))
        for effect in effects:
            self._perform(effect, at)

    def _perform(self, effect: Effect, at: int) -> None:
        match effect:
            case Send(to, message):
                self._put(to, message)
            case RunGrant(grant):
                self._granted = grant
                self.executor.run(grant)
            case AskYield(grant, give_up):
                self.executor.ask_yield(grant, give_up)
            case Notify(event):
                listener = self._listeners.get(event.request)
                if listener is not None:
                    listener(event, at)
            case SetTimer(key, when, to, message):
                self._set_timer(key, when, to, message)
            case CancelTimer(key):
                self._cancel_timer(key)
            case DropSuspended(step):
                self.executor.drop_suspended(step)
            case DropRetained(model, handle):
                self.executor.drop_retained(model, handle)
            case UnloadModel(model):
                self.executor.unload(model)
            case Stop():
                self._stop()
            case Report():
                pass

    def _stop(self) -> None:
        """Mailboxes are emptied and nothing more is taken, not even from timers or from the executor's last command."""
        self._stopped = True
        for sender, _ in self._channels.values():
            sender.close()
        for key in list(self._timers):
            self._cancel_timer(key)

    def _put(self, to: str, message: Message) -> None:
        self._channels[to][0].send_nowait(message)

    def _token_made(self, request: str, index: int) -> None:
        """Often from the executor's thread: waking Trio's takes time from the step, so only for who listens."""
        if self.observers.want_tokens:
            at = self.clock()
            self.call(lambda: self.observers.token(request, index, at))

    def _post(self, to: str, message: Message) -> None:
        """From the executor, on any thread. When a step took its device along, what it had shown counts."""
        grant = self._granted
        if grant is not None and isinstance(message, GrantEnded) and isinstance(message.outcome, Failed):
            outcome = attrs.evolve(message.outcome, shown=self.streams.shown(grant.step))
            message = GrantEnded(message.grant, outcome if outcome.sticky else message.outcome)
        self.call(partial(self.send_anyway, to, message))

    def _end_listeners(self) -> None:
        """Whoever still listens is told; after an orderly end nobody does."""
        listeners, self._listeners = self._listeners, {}
        for request, listener in listeners.items():
            listener(Refused(request, Closed("the scheduler ended before the request did")), self.clock())

    # --- timers -------------------------------------------------------------------------------------------------

    def _set_timer(self, key: str, when: int, to: str, message: Message) -> None:
        self._cancel_timer(key)
        if self._nursery is not None:
            scope = self._timers[key] = trio.CancelScope()
            self._nursery.start_soon(self._ring, scope, key, when, to, message)

    def _cancel_timer(self, key: str) -> None:
        scope = self._timers.pop(key, None)
        if scope is not None:
            scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _ring(self, scope: trio.CancelScope, key: str, when: int, to: str, message: Message) -> None:
        with scope:
            await trio.sleep(max(0, when - self.clock()) / 1e9)
            self.send_anyway(to, message)
        if self._timers.get(key) is scope:
            del self._timers[key]
