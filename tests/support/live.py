"""A live scheduler on the scripted reference backend with the synthetic checkpoint, and what must hold after it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import attrs
import trio
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import Assembly, assemble
from coresident.runtime.host.live import LiveRuntime, open_live

from coresident.scheduler import Scheduler
from support.doors import through
from support.scripted import ScriptedBackend

door = ContextVar("door", default="trio")
LONG = "The tide comes in and goes out again. " * 6


def config(**sections: dict[str, Any] | bool):
    """Small and fast: chunks of 16 tokens, 512 tokens of context; sections override."""
    base: dict[str, Any] = {
        "device": {"partition": "64 MiB", "workspace": "8 MiB"},
        "generation": {"model": "synthetic", "context": 512, "chunk": 16, "retained": "4 MiB"},
        "decision": {"context": 256},
    }
    for name, section in sections.items():
        base[name] = {**base.get(name, {}), **section} if isinstance(section, dict) else section
    return structure(base)


def run(main: Callable[[], Awaitable[Any]], seconds: float = 20.0, clock: trio.abc.Clock | None = None) -> Any:
    """Run a test's coroutine; the limit is a watchdog that no passing test comes near.

    With a ``MockClock`` a deadline comes when the test lets it: the clock stands until it is moved.
    """

    async def watched() -> Any:
        with trio.fail_after(seconds):
            return await main()

    return trio.run(watched, clock=clock)


async def numbers_of(generation: Any) -> list[tuple[Any, ...]]:
    """Stream a generation to its end: all that must be equal to the bit, token by token."""
    async with generation:
        pieces = [piece async for piece in generation]
    return [(piece.token, piece.logprob, piece.top) for piece in pieces if piece.token is not None]


@attrs.frozen
class Desk:
    """An open scheduler and everything that a test looks at."""

    scheduler: Scheduler
    runtime: LiveRuntime
    backend: ScriptedBackend
    assembly: Assembly

    def idle(self) -> bool:
        """Nothing is open and nothing of a request is on the device."""
        now = self.scheduler.statistics()
        workspace = now.device.ledger.accounts["workspace"].used
        decisions = now.decision.open if now.decision is not None else 0
        return (now.generation.open, decisions, now.device.waiting, workspace, now.device.state) == (0, 0, 0, 0, "idle")

    async def settled(self) -> None:
        """Wait until saves and withdrawals that follow a request's end are through, and check that nothing is left."""
        while not self.idle():
            await trio.lowlevel.checkpoint()
        now = self.scheduler.statistics()
        assert now.streams == 0
        assert self.runtime.host.listening == 0
        assert now.generation.slots == self.assembly.config.generation.sequences
        assert self.backend.open_workspaces == 0


class Heard:
    """An observer that waits for an actor to take a message of one kind, or to want such an effect or event."""

    def __init__(self, kind: type) -> None:
        self.event = trio.Event()
        self._kind = kind
        self._token = trio.lowlevel.current_trio_token()

    def delivered(self, delivery: Any) -> None:
        seen = (delivery.message, *delivery.effects, *delivery.events())
        if any(isinstance(one, self._kind) for one in seen):
            # When the delivery is over, on the thread of the test: other front doors run the scheduler on their own.
            trio.lowlevel.current_trio_token().run_sync_soon(self._token.run_sync_soon, self.event.set)

    def token(self, request: str, index: int, at: int) -> None: ...

    def dropped(self, error: Exception) -> None: ...


@attrs.define
class Bench:
    """What is made before opening, so that it can be looked at when opening or closing fails."""

    config: Any = attrs.field(factory=config)
    observers: Iterable[Any] = ()
    backend: ScriptedBackend = attrs.field(init=False)
    assembly: Assembly = attrs.field(init=False)
    kits: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        opened = open_backend(self.config)
        self.backend = ScriptedBackend(opened.backend)
        self.kits = opened.kits
        self.assembly = assemble(self.config, self.backend, opened.heads)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Desk]:
        async with open_live(self.assembly, self.observers) as runtime:
            yield Desk(Scheduler(runtime, self.kits), runtime, self.backend, self.assembly)

    def check_closed(self) -> None:
        """Every byte returned, no thread, request, stream or suspended run left, never two threads on the device."""
        device = self.assembly.device.statistics()
        assert (device.state, device.waiting, device.ledger.reserved, dict(device.ledger.accounts)) == (
            "closed",
            0,
            0,
            {},
        )
        assert self.assembly.generation.statistics().open == 0
        if self.assembly.decision is not None:
            assert self.assembly.decision.statistics().open == 0
        assert self.assembly.supervisor.readiness().state == "closed"
        assert self.backend.open_workspaces == 0
        assert self.backend.most_inside <= 1
        assert device_threads() == []


def device_threads() -> list[str]:
    """Device threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("coresident")]


@asynccontextmanager
async def desk(observers: Iterable[Any] = (), **sections: Any) -> AsyncIterator[Desk]:
    """Open a small scheduler through the test's front door, and check what must hold after it closed."""
    bench = Bench(config(**sections), observers)
    async with through(door.get(), bench.open) as (opened, seen):
        yield attrs.evolve(opened, scheduler=seen(opened.scheduler))
    assert opened.runtime.host.listening == 0
    assert len(opened.runtime.host.streams) == 0
    bench.check_closed()
