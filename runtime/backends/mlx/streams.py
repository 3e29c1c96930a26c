"""The stream that all work of one backend runs on, one thread at a time.

MLX's own streams belong to the thread that made them and leave a system thread behind when it ends; a stream that any
thread may use in turn needs only that two never do so at once, which is checked here. Streams of backends that hold
nothing any more are lent again, so that opening backends does not add up to threads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import mlx.core as mx

from ....actors.errors import BackendFault
from ..contract import Segment
from .workspace import StepMemory

T = TypeVar("T")


class _Pool:
    """Streams that nobody uses, for the next backend."""

    def __init__(self) -> None:
        # Reentrant, because a holder may be collected, and so give back, inside of another's call.
        self._lock = threading.RLock()
        self._idle: list[mx.Stream] = []

    def take(self) -> mx.Stream:
        with self._lock:
            return self._idle.pop() if self._idle else mx.new_thread_unsafe_stream(mx.default_device())

    def give(self, stream: mx.Stream) -> None:
        with self._lock:
            self._idle.append(stream)


_POOL = _Pool()


@contextmanager
def borrowed() -> Iterator[None]:
    """A stream for what is only built, on whatever thread: the thread's own would leave a system thread behind."""
    stream = _POOL.take()
    try:
        with mx.stream(stream):
            yield
    finally:
        _POOL.give(stream)


class DeviceStream:
    """A stream of its own, given back at the latest when it is collected."""

    def __init__(self) -> None:
        self._stream = _POOL.take()
        self._inside: int | None = None
        weakref.finalize(self, _POOL.give, self._stream)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the stream the default of this thread, and have nothing left running on it afterwards.

        Raises ``BackendFault`` while another thread is inside.
        """
        me = threading.get_ident()
        if self._inside is not None:
            raise BackendFault("two threads use one MLX backend at once: all its steps belong on the device's thread")
        self._inside = me
        try:
            with mx.stream(self._stream):
                try:
                    yield
                finally:
                    mx.synchronize(self._stream)
        finally:
            self._inside = None

    def drive(
        self, steps: Generator[Segment, None, T], memory: StepMemory | None = None
    ) -> Generator[Segment, None, T]:
        """The same segments, each on the stream, and metered where a workspace is given."""
        try:
            while True:
                with self.entered(), _metered(memory):
                    try:
                        segment = next(steps)
                    except StopIteration as end:
                        result: T = end.value
                        return result
                yield segment
        except GeneratorExit:
            with self.entered(), _metered(memory):
                steps.close()
            raise


def _metered(memory: StepMemory | None) -> AbstractContextManager[None]:
    return nullcontext() if memory is None else memory.metered()
