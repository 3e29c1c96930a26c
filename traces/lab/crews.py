"""Who carries out runs: this process, its threads, processes of its own, or a dask cluster.

A crew opens an executor of :mod:`concurrent.futures` for as long as a block lasts, and again when that one broke.
Leaving the block by an error or by Ctrl-C ends what still runs: results are kept by the sweep, so nothing is lost but
the runs that were in flight.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from multiprocessing.connection import wait
from typing import Any, ParamSpec, TypeVar

import attrs

from ...actors.errors import InvalidRequest

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Kind(StrEnum):
    """Crews by name: ``serial`` is this process, ``cluster`` is dask."""

    PROCESSES = "processes"
    THREADS = "threads"
    SERIAL = "serial"
    CLUSTER = "cluster"


@attrs.frozen
class Crew:
    """``open(workers)`` gives an executor; ``workers`` is how many runs it carries out at a time, at most.

    ``lost`` are errors of an executor that goes on when a worker dies, about the run that the worker died of.
    """

    open: Callable[[int], AbstractContextManager[Executor]]
    workers: int
    lost: tuple[type[BaseException], ...] = ()


def crew(kind: str, workers: int | None = None, address: str | None = None) -> Crew:
    """A crew by name. ``address`` is a dask scheduler's; without one, a ``cluster`` is on this machine.

    Raises ``InvalidRequest`` for an unknown kind, for what it has no use of, and where a package is not installed.
    """
    if kind not in set(Kind):
        raise InvalidRequest(f"no executor is called {kind!r}: there are {', '.join(Kind)}", executor=kind)
    if address is not None and kind != Kind.CLUSTER:
        raise InvalidRequest(f"the executor {str(kind)!r} has no use of the cluster {address}: leave one of them out")
    if workers is not None and (address is not None or kind == Kind.SERIAL):
        own = "this process" if address is None else f"the cluster {address}"
        raise InvalidRequest(f"workers is {workers}: {own} has its own number of them, leave it out", workers=workers)
    count = workers or os.cpu_count() or 1
    if kind == Kind.CLUSTER:
        from .cluster import cluster

        return cluster(count, address)
    if kind == Kind.SERIAL:
        return Crew(_serial, 1)
    return Crew(processes if kind == Kind.PROCESSES else _threads, count)


class _Serial(Executor):
    """Carries out each call before ``submit`` returns."""

    def submit(self, function: Callable[_P, _T], /, *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            future.set_result(function(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def deaf() -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C, which a terminal sends to all of them: only this one acts on it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


class _Processes(ProcessPoolExecutor):
    """Starts its processes, when they are first needed, deaf to Ctrl-C."""

    def submit(self, function: Callable[_P, _T], /, *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        with deaf():
            return super().submit(function, *args, **named)


@contextmanager
def processes(workers: int) -> Iterator[Executor]:
    """Processes that start afresh, with nothing of this one's state."""
    others = set(multiprocessing.active_children())
    pool = _Processes(workers, multiprocessing.get_context("spawn"), _follow_parent)
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """In a worker: end when the parent does, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent.sentinel,), daemon=True).start()


def _outlive(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def _threads(workers: int) -> Iterator[Executor]:
    """Threads can't be ended: Ctrl-C waits for the runs in flight."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _serial(workers: int) -> Iterator[Executor]:
    yield _Serial()
