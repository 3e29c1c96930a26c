"""What is logged of artifacts, devices, workers and readiness: the names of the events in one place.

structlog that nobody has configured prints to stdout, which belongs to the application. What is merely informative is
said only where structlog is configured; warnings and errors are always said. It is imported when something is said, as
a worker process mostly says nothing.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Any


class Logged(StrEnum):
    """Events about artifacts, devices, workers and readiness."""

    DEVICE_CLAIMED = "device.claimed"
    DEVICE_REFUSED = "device.refused"
    DEVICE_RELEASED = "device.released"
    DEVICE_ABANDONED = "device.abandoned"
    HOUSEKEEPING_FAILED = "device.housekeeping_failed"
    DRIVER_LEFT_OUT = "driver.left_out"
    WORKER_STARTED = "worker.started"
    WORKER_ENDED = "worker.ended"
    WORKER_LOST = "worker.lost"
    WORKER_ABANDONED = "worker.abandoned"
    WORKER_STDERR = "worker.stderr"
    WORKER_STDERR_CUT = "worker.stderr_cut"
    REGISTRY_REAPED = "registry.reaped"
    REGISTRY_UNREADABLE = "registry.unreadable"
    REGISTRY_UNAVAILABLE = "registry.unavailable"
    REGISTRY_UNPUBLISHED = "registry.unpublished"
    HOLDING_KEPT = "holding.kept"
    LEASE_TAKEN = "lease.taken"
    LEASE_RELEASED = "lease.released"
    LEASE_UNAVAILABLE = "lease.unavailable"
    PIPELINE_CACHE_IGNORED = "pipeline_cache.ignored"
    ARTIFACT_VERIFIED = "artifact.verified"
    ARTIFACT_DAMAGED = "artifact.damaged"
    ARTIFACT_REPLACED = "artifact.replaced"
    MODEL_LOADED = "model.loaded"
    MODEL_WARM = "model.warm"
    READINESS = "readiness"


def inform(event: Logged, **fields: Any) -> None:
    """Say what happened, where somebody has said how to."""
    # Nobody has configured what nobody has imported.
    if "structlog" in sys.modules and sys.modules["structlog"].is_configured():
        _logger().info(event.value, **fields)


def warn(event: Logged, **fields: Any) -> None:
    """Say what a person should look at."""
    _logger().warning(event.value, **fields)


def complain(event: Logged, **fields: Any) -> None:
    """Say what has gone wrong for good."""
    _logger().error(event.value, **fields)


def _logger() -> Any:
    import structlog

    return structlog.get_logger("coresident")
