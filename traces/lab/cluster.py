"""Runs on a dask cluster: one that is there already, or a small one on this machine. Imported when it is used."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

from ...actors.errors import BackendFault, InvalidRequest
from .crews import Crew, deaf

IN_FLIGHT = 256
_CONNECT_S = 30
# On a busy machine a worker that died takes longer to be back than what makes the cluster give it up.
_SETTINGS = {"distributed.scheduler.worker-saturation": 1.0, "distributed.deploy.lost-worker-timeout": "1 hour"}


def cluster(workers: int, address: str | None) -> Crew:
    """Raises ``InvalidRequest`` when dask's ``distributed`` is not installed."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise InvalidRequest(
            "the executor 'cluster' needs the package distributed: install coresident[cluster], or take processes"
        ) from error
    return Crew(partial(_cluster, address, workers), IN_FLIGHT, (distributed.KilledWorker,))


@contextmanager
def _cluster(address: str | None, size: int, _: int) -> Iterator[Executor]:
    """The scheduler decides which worker gets a run, and gives it to another one when a worker is lost.

    Workers of a cluster that was there before see the same files at the same paths.
    """
    distributed: Any = import_module("distributed")
    with nullcontext(address) if address else _local(distributed, size) as found:
        try:
            client = distributed.Client(found, timeout=_CONNECT_S)
        except (OSError, ValueError) as error:
            raise BackendFault(f"no dask scheduler answers at {address}: {error}; give its tcp://HOST:PORT") from error
        with client:
            executor = client.get_executor(pure=False)
            try:
                yield executor
            finally:
                # Without waiting, what is still in flight is cancelled; at a good end nothing is.
                executor.shutdown(wait=False)


@contextmanager
def _local(distributed: Any, size: int) -> Iterator[Any]:
    """A cluster of processes that ignore Ctrl-C, of which each has one run at a time and no other ready.

    So a run is carried out twice at most when a worker dies, and no other run is blamed. What the cluster logs is only
    what ends it: failures are results.
    """
    with import_module("dask").config.set(_SETTINGS):
        with deaf():
            cluster = distributed.LocalCluster(
                n_workers=size,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                scheduler_kwargs={"allowed_failures": 1},
            )
        with cluster:
            yield cluster
