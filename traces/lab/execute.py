"""Carrying out one run, wherever it was sent: what goes in and comes out is plain and can be pickled.

A result is a dictionary as JSON has it. A run that fails has its error in the place of figures: the sweep goes on.
"""

from __future__ import annotations

import errno
import json
import time
import traceback
from pathlib import Path
from typing import Any

import attrs

from ...actors.errors import CoresidentError, InvalidRequest
from ..simulate import Simulation, simulate
from .identity import canonical, file_digest, library, own_code
from .plan import Run
from .store import replacing

FULL = (errno.ENOSPC, errno.EDQUOT)


class WorkerLost(CoresidentError):
    """The process that carried out a run ended before the run did, twice. Whoever runs the sweep acts."""


def execute(run: Run) -> dict[str, Any]:
    """Simulate and give the result; ``cpu_ns`` is this thread's time, and no part of what is compared.

    Raises ``OSError`` when there is no room for the trace to record: the next run would have none either.
    """
    began = time.thread_time_ns()
    try:
        result = _figures(_simulate(run))
    except (Exception, SystemExit) as error:
        # A user's own policy runs in there and may fail in any way; the others must not suffer from it.
        full = error.__cause__ if isinstance(error, InvalidRequest) else error
        if isinstance(full, OSError) and full.errno in FULL:
            raise full from None
        result = failure(error)
    plain: dict[str, Any] = json.loads(canonical(result))
    return {"run": run.id, **plain, "cpu_ns": time.thread_time_ns() - began}


def failure(error: BaseException) -> dict[str, Any]:
    """What stands for the figures of a run that failed; a traceback where the error is not one of the library's."""
    known = isinstance(error, CoresidentError | OSError)
    trace = "" if known else "".join(traceback.format_exception(error))
    return {"error": {"type": type(error).__name__, "message": str(error), "traceback": trace}}


def check_library(planned: str, worker: str) -> None:
    """Raises ``InvalidRequest`` when a worker's library isn't the one that the runs were planned with."""
    if worker != planned:
        raise InvalidRequest(
            f"the runs were planned with coresident {planned}, and a worker has {worker}: "
            "give both the same version, or start the sweep again if the library has just changed",
            planned=planned,
            worker=worker,
        )


def _simulate(run: Run) -> Simulation:
    check_library(run.library, library())
    if file_digest(run.path) != run.content:
        raise InvalidRequest(f"the trace {run.path} is not the file that the runs were planned with: start them again")
    if run.record is None:
        return _unchanged(run, None)
    run.record.parent.mkdir(parents=True, exist_ok=True)
    with replacing(run.record) as part:
        return _unchanged(run, part)


def _unchanged(run: Run, record: Path | None) -> Simulation:
    """Simulate, and make sure that the user's own policies are those that the run was planned with."""
    simulation = simulate(run.path, run.config, seed=run.seed, limit=run.limit, record=record)
    if own_code(run.config.policies) != run.code:
        raise InvalidRequest(f"{', '.join(run.code)} changed since the runs were planned: start them again")
    return simulation


def _figures(simulation: Simulation) -> dict[str, Any]:
    statistics = simulation.statistics.as_dict()
    if statistics["preparation"] is not None:
        # One entry for each preparation: a recorded trace has them.
        del statistics["preparation"]["accounts"]
    fields = {field.name: getattr(simulation, field.name) for field in attrs.fields(Simulation)}
    del fields["recorded"]
    return {"error": None, **fields, "statistics": statistics}
