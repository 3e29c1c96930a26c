"""The scheduler behind the engine seam: any number of engines as thin views over one bounded runtime.

Nothing is built when an engine is made. The first call builds the scheduler, once, however many callers race for it;
they all wait for the same build and see the same error when it fails. A failed build is kept: calls go on raising it,
and only an explicit ``preload`` tries again. Nothing stands in for the model that was asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from .actors.errors import Closed, CoresidentError, InvalidRequest
from .engine import CANCEL, COMPLETE, PRELOAD, Call, Completion
from .opening import open_scheduler, read_config
from .runtime.config import Config
from .runtime.host.groups import raise_only
from .runtime.host.observers import Observer
from .runtime.models.tokenizer import ByteTokenizer
from .scheduler import Scheduler


class LazyScheduler:
    """A scheduler that is opened by its first user and shared by all. Made by :func:`open_engine`."""

    def __init__(self, nursery: trio.Nursery, config: Config, observers: tuple[Observer, ...] = ()) -> None:
        self._nursery = nursery
        self._config = config
        self._observers = observers
        self._claimed = False
        self._settled = trio.Event()
        self._closing = trio.Event()
        self._scheduler: Scheduler | None = None
        self._error: CoresidentError | None = None

    async def get(self) -> Scheduler:
        """The scheduler, built if nobody has yet. Raises what the build raised, and ``Closed`` after the end."""
        self._claim(None)
        await self._settled.wait()
        if self._closing.is_set():
            raise Closed("the engine is closed: open another one")
        if self._scheduler is None:
            raise self._error.again() if self._error else Closed("the engine's scheduler ended while it was built")
        return self._scheduler

    async def preload(self, model: str | None) -> str | None:
        """Build with this model unless a build was claimed before; the label of the model that is there."""
        if model is None:
            return None
        if self._error is not None:
            self._claimed, self._settled, self._error = False, trio.Event(), None
        self._claim(model)
        return (await self.get()).label

    def close(self) -> None:
        """Let the scheduler end; whoever waits for a build is told."""
        self._closing.set()

    def _claim(self, model: str | None) -> None:
        """The one guard of first use and every kind of preload."""
        if self._claimed or self._closing.is_set():
            return
        self._claimed = True
        config = self._config
        if model is not None:
            config = attrs.evolve(config, generation=attrs.evolve(config.generation, model=model))
        self._nursery.start_soon(self._hold, config, self._settled)

    async def _hold(self, config: Config, settled: trio.Event) -> None:
        try:
            async with open_scheduler(config, observers=self._observers) as scheduler:
                self._scheduler = scheduler
                settled.set()
                await self._closing.wait()
        except CoresidentError as error:
            self._error = error
        finally:
            self._scheduler = None
            settled.set()


class SchedulerEngine:
    """An engine over a scheduler: one that is open, or one that the first call opens.

    Every call is an ordinary foreground request: greedy, scheduled, accounted for and cancelled like any other. Only an
    engine that builds its scheduler itself has the capability ``preload``.
    """

    def __init__(self, name: str, source: Scheduler | LazyScheduler) -> None:
        self._id = name
        self._source = source

    @property
    def id(self) -> str:
        """The id that completions carry."""
        return self._id

    @property
    def capabilities(self) -> frozenset[str]:
        """What this engine can do, as open strings."""
        always = frozenset({COMPLETE, CANCEL})
        return always if isinstance(self._source, Scheduler) else always | {PRELOAD}

    def view(self, name: str) -> SchedulerEngine:
        """Another engine over the same scheduler: nothing is loaded twice."""
        return SchedulerEngine(name, self._source)

    def negotiate(self, wanted: Iterable[str]) -> frozenset[str]:
        """The capabilities that both sides know."""
        return self.capabilities.intersection(wanted)

    async def preload(self, model: str | None) -> str | None:
        """Build now. The first caller's model wins, first use included; ``None`` is ignored.

        Args:
            model: a path, ``smollm2`` or ``synthetic``; quantized files are named like others and take the same guard.

        Returns:
            The label of the model that is resident, whoever chose it; ``None`` when ``model`` was.

        Raises:
            InvalidRequest: this engine was given an open scheduler. Otherwise what the build raised.
        """
        if isinstance(self._source, Scheduler):
            raise InvalidRequest(f"engine {self._id} has no capability {PRELOAD!r}: its scheduler is already open")
        return await self._source.preload(model)

    async def complete(self, call: Call) -> Completion:
        """Payload bytes to tokens, a prefill, a greedy decode, and the accounting.

        Cancelling the wait cancels the request.

        Raises:
            InvalidRequest: the payload is empty or no UTF-8. ``ContextExceeded``, ``Overloaded`` and the others as from
                ``Scheduler.generate``, and what a failed build raised.
        """
        scheduler = self._source if isinstance(self._source, Scheduler) else await self._source.get()
        result = await scheduler.generate(_prompt(scheduler, call.payload), max_tokens=call.max_tokens)
        return Completion(
            engine=self._id,
            model=scheduler.label,
            tokens=result.tokens,
            text=result.text,
            input_tokens=result.prompt_tokens,
            output_tokens=len(result.tokens),
        )


def _prompt(scheduler: Scheduler, payload: bytes) -> str | tuple[int, ...]:
    if not payload:
        raise InvalidRequest("the payload is empty: send at least one byte", field="payload")
    if isinstance(scheduler.tokenizer, ByteTokenizer):
        return tuple(payload)
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"payload has the byte {payload[error.start]:#04x} at {error.start}, which is no UTF-8: "
            f"{scheduler.label} takes text",
            field="payload",
            position=error.start,
        ) from None


@asynccontextmanager
async def open_engine(
    config: Config | str | Path | None = None, *, name: str = "coresident", observers: Iterable[Observer] = ()
) -> AsyncIterator[SchedulerEngine]:
    """An engine whose scheduler is built by the first call or ``preload``, and closed at the end of the block.

    The configuration's file is read here; models, and what their files say, only when something is built.

    Raises:
        InvalidRequest: the configuration file is not what it should be.
    """
    config = read_config(config)
    try:
        async with trio.open_nursery() as nursery:
            source = LazyScheduler(nursery, config, tuple(observers))
            try:
                yield SchedulerEngine(name, source)
            finally:
                source.close()
    except BaseExceptionGroup as group:
        raise_only(group)
