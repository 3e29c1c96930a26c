"""Carrying out all runs of a plan: what is done is kept at once, and what was done before is not done again.

A run that fails is a result like any other. When a worker process dies it takes those of the others with it: all runs
that were in flight are carried out again, each alone, so that the one at fault is known by its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import attrs

from ...actors.errors import BackendFault
from .crews import Crew
from .execute import FULL, WorkerLost, check_library, execute, failure
from .identity import library
from .plan import Run
from .store import Store, keeping

Result: TypeAlias = Mapping[str, Any]
ANSWER_S = 120
LOST = "its worker process ended before it did, twice: was it killed, or out of memory?"


@attrs.frozen
class Progress:
    """Runs that are done, of all; ``kept`` of them were found done."""

    done: int
    total: int
    kept: int


OnProgress: TypeAlias = Callable[[Progress], None]


@attrs.frozen
class Swept:
    """The result of every run by its id; ``kept`` runs were found done, of ``damaged`` files none was used."""

    results: Mapping[str, Result]
    kept: int
    damaged: tuple[str, ...]

    @property
    def failed(self) -> int:
        """How many runs ended in an error."""
        return sum(result["error"] is not None for result in self.results.values())


class _Sweep:
    """The runs still to do, and the results so far."""

    def __init__(self, runs: Sequence[Run], store: Store, crew: Crew, on_progress: OnProgress | None) -> None:
        self._store = store
        self._crew = crew
        self._on_progress = on_progress
        unique = {run.id: run for run in runs}
        found = {run.id: store.load(run) for run in unique.values()}
        self.results: dict[str, Result] = {id: result for id, result in found.items() if result is not None}
        self.todo = deque(run for run in unique.values() if run.id not in self.results)
        self._total = len(unique)
        self.kept = len(self.results)
        self._tell()

    def carry_out(self) -> None:
        """All that is to do, and again alone what a lost worker left undone."""
        while self.todo:
            lost = self._fly(self.todo, self._crew.workers)
            for run in lost:
                if self._fly(deque([run]), 1):
                    self._end(run, _without_figures(run, WorkerLost(LOST)))

    def _fly(self, todo: deque[Run], workers: int) -> list[Run]:
        """Carry out what is to do on one executor; gives the runs that were in flight when it broke."""
        flying: dict[Future[dict[str, Any]], Run] = {}
        with self._crew.open(workers) as executor:
            _ask(executor, todo[0].library)
            while todo or flying:
                broken = _submit(executor, todo, flying, workers)
                done, _ = wait(flying, return_when=ALL_COMPLETED if broken else FIRST_COMPLETED)
                lost = [run for future in done if not self._land(run := flying.pop(future), future)]
                if lost or broken:
                    wait(flying)
                    return lost + [run for future, run in flying.items() if not self._land(run, future)]
        return []

    def _land(self, run: Run, future: Future[dict[str, Any]]) -> bool:
        """Keep what came of a run; false when its executor broke, so that nothing did."""
        try:
            error = future.exception()
        except CancelledError:
            return False
        if isinstance(error, BrokenExecutor):
            return False
        if isinstance(error, OSError) and error.errno in FULL:
            with self._keeping():
                raise error
        if isinstance(error, self._crew.lost):
            error = WorkerLost(LOST)
        self._end(run, future.result() if error is None else _without_figures(run, error))
        return True

    def _end(self, run: Run, result: Result) -> None:
        with self._keeping():
            self._store.save(run, result)
        self.results[run.id] = result
        self._tell()

    def _keeping(self) -> AbstractContextManager[None]:
        return keeping(self._store.folder, len(self.results), self._total)

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(len(self.results), self._total, self.kept))


def sweep(runs: Sequence[Run], store: Store, crew: Crew, on_progress: OnProgress | None = None) -> Swept:
    """Carry out what ``store`` does not have yet.

    Raises:
        BackendFault: the crew's workers can't start.
        InvalidRequest: they have another version of the library.
        NotKept: a result or a trace can't be written.
    """
    work = _Sweep(runs, store, crew, on_progress)
    work.carry_out()
    return Swept(work.results, work.kept, tuple(str(path) for path in store.damaged))


def _ask(executor: Executor, planned: str) -> None:
    """Whether workers start at all, with this library: one that can't is no fault of a run."""
    try:
        check_library(planned, executor.submit(library).result(ANSWER_S))
    except TimeoutError as error:
        raise BackendFault(f"no worker has answered within {ANSWER_S} s: is there any? Start some, or wait") from error
    except BrokenExecutor as error:
        raise BackendFault(
            f"the worker processes can't start: {error}; see what they say on stderr, or take the executor 'serial'"
        ) from error


def _submit(executor: Executor, todo: deque[Run], flying: dict[Future[dict[str, Any]], Run], workers: int) -> bool:
    """Send as many runs as are carried out at a time, so that no others are in flight; true when that broke."""
    while todo and len(flying) < workers:
        try:
            future = executor.submit(execute, todo[0])
        except BrokenExecutor:
            return True
        flying[future] = todo.popleft()
    return False


def _without_figures(run: Run, error: BaseException) -> Result:
    return {"run": run.id, **failure(error), "cpu_ns": 0}
