"""Commands that compute in their own process, whatever a scheduler of the same configuration would do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from ..runtime.config import Config
from ..runtime.worker.drivers import WorkerEnvironment


@contextmanager
def computing_here(config: Config) -> Iterator[Config]:
    """The configuration for steps of this process, which meanwhile has in its environment what a worker would have.

    Raises ``ArtifactInvalid`` for a driver manifest that can't be read.
    """
    before = dict(os.environ)
    environment = WorkerEnvironment(before, config.device.driver)
    added = {name: value for name, value in environment.variables.items() if before.get(name) != value}
    try:
        os.environ.update(added)
        yield attrs.evolve(config, device=config.device.inside())
    finally:
        for name in added:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
        environment.close()
