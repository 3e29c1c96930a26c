"""Which executor a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from ..backends.verifying import repair_stored
from ..config import DeviceConfig
from ..config_worker import PROCESS
from .assembly import Assembly
from .executor import Executor, ExecutorFactory, Post
from .process import ProcessExecutor
from .steps import Streams
from .threaded import ThreadExecutor
from .watchdog import Bounds, Watchdog
from .worker_setup import WorkerSetup

SECOND_NS = 1_000_000_000


def bounds_of(device: DeviceConfig) -> Bounds:
    """How long a grant may take on a device."""
    return Bounds(device.step_seconds * SECOND_NS, device.load_seconds * SECOND_NS)


def setup_of(assembly: Assembly) -> WorkerSetup:
    """What worker processes need for an assembly."""
    digests = {model: description.digest for model, description in assembly.models.items()}
    # A scheduler that closes does not wait until the last of many gigabytes has been read.
    repair = partial(repair_stored, assembly.backend, trio.from_thread.check_cancelled)
    return WorkerSetup(assembly.config, assembly.plans, digests, repair=repair)


def executor_factory(assembly: Assembly) -> ExecutorFactory:
    """``device.executor`` of the configuration, as something a host makes its executor with."""

    def make(streams: Streams, post: Post, clock: Callable[[], int]) -> Executor:
        watchdog = Watchdog(bounds_of(assembly.config.device))
        if assembly.config.device.executor == PROCESS:
            return ProcessExecutor(setup_of(assembly), streams, post, watchdog, clock)
        return ThreadExecutor(assembly.backend, streams, assembly.plans, post, watchdog, clock)

    return make
