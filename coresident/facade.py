"""What the asyncio and the blocking front doors have in common: the Trio one, called on its own thread.

The Trio front door is the one implementation. Its methods are carried over with their signatures, types and
docstrings, so that a parameter which is added there is there for all three.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from .actors.errors import Closed
from .actors.events import PrefixReused
from .generation import Generation
from .portal import Job, TrioThread
from .preparation import Preparation
from .results import Piece
from .runtime.host.assembly import Account
from .runtime.models.tokenizer import AnyTokenizer
from .scheduler import Scheduler
from .scheduler_engine import SchedulerEngine

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
X = TypeVar("X")


class Facade(Generic[X]):
    """An object of the Trio front door from outside: ``inner`` lives on ``thread``."""

    def __init__(self, thread: TrioThread[Any], inner: X) -> None:
        self._thread = thread
        self._inner = inner


def called(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method that doesn't wait: it runs on the Trio thread, within the call."""

    def call(self: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(partial(method, self._inner, *args, **kwargs))

    update_wrapper(call, method)
    return call


def making(
    method: Callable[Concatenate[S, P], X], make: Callable[[TrioThread[Any], X], T]
) -> Callable[Concatenate[Any, P], T]:
    """A method that doesn't wait, whose result has a facade of its own."""

    def call(self: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return make(self._thread, self._thread.call(partial(method, self._inner, *args, **kwargs)))

    update_wrapper(call, method)
    return call


class GenerationFacade(Facade[Generation]):
    """A generation whose pieces are read from where they are; only the news that there are more crosses threads."""

    def __init__(self, thread: TrioThread[Any], inner: Generation) -> None:
        super().__init__(thread, inner)
        self.request = inner.request
        self._read = 0
        self._reading = threading.Lock()

    cancel = called(Generation.cancel)

    @property
    def reuse(self) -> PrefixReused | None:
        """What the prompt found retained, once it has been looked for."""
        return self._inner.reuse

    def _next(self) -> Piece | None:
        """The next piece, ``None`` while it has not come. Raises at the end as iterating does.

        Several readers share the pieces.
        """
        alive = self._thread.alive
        with self._reading:
            piece = self._inner.piece(self._read)
            self._read += piece is not None
        if piece is None and not alive:
            raise Closed("the thread of the scheduler is not in this process, or failed: open another scheduler")
        return piece

    def _leave(self) -> Job[None]:
        return self._thread.submit(partial(self._inner.__aexit__, None, None, None))


class PreparationFacade(Facade[Preparation]):
    """A preparation on its way."""

    def __init__(self, thread: TrioThread[Any], inner: Preparation) -> None:
        super().__init__(thread, inner)
        self.request = inner.request
        self.limited = inner.limited

    cancel = called(Preparation.cancel)

    @property
    def progress(self) -> tuple[int, int]:
        """Tokens that are there, and tokens that are to be; ``(0, 0)`` before the first chunk."""
        return self._inner.progress

    @property
    def ended(self) -> bool:
        return self._inner.ended


class SchedulerFacade(Facade[Scheduler]):
    """What of a scheduler doesn't wait."""

    assemble = called(Scheduler.assemble)
    pin = called(Scheduler.pin)
    release = called(Scheduler.release)
    measure = called(Scheduler.measure)
    readiness = called(Scheduler.readiness)
    statistics = called(Scheduler.statistics)

    @property
    def recording_error(self) -> Exception | None:
        """What ended the recording early; its trace is whole when this is ``None`` after the block."""
        return self._inner.recording_error

    @property
    def account(self) -> Account:
        """What the configuration takes of the partition, buffer by buffer."""
        return self._inner.account

    @property
    def label(self) -> str:
        """The generation model's name, as its file gives it."""
        return self._inner.label

    @property
    def tokenizer(self) -> AnyTokenizer:
        """The generation model's tokenizer."""
        return self._inner.tokenizer

    def _engine(self, name: str) -> SchedulerEngine:
        return SchedulerEngine(name, self._inner)


class EngineFacade(Facade[SchedulerEngine]):
    """What of an engine doesn't wait."""

    negotiate = called(SchedulerEngine.negotiate)

    @property
    def id(self) -> str:
        """The id that completions carry."""
        return self._inner.id

    @property
    def capabilities(self) -> frozenset[str]:
        """What this engine can do, as open strings."""
        return self._inner.capabilities
