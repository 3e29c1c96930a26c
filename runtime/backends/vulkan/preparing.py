"""Compiling ahead: every pipeline of a configuration's models is made, and what the driver compiled is kept.

Drivers compile a kernel when its pipeline is made, or when it first runs: so one step of each kind runs too. The file
is for later processes; some drivers keep one of their own besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from ....actors.errors import BackendFault
from ..checks import Bench
from ..contract import Backend, PlanRequest
from .describing import FEEDBACK
from .device import Device
from .pipeline_cache import EMPTY


@attrs.frozen
class Prepared:
    """What was made ready: pipelines, how many of them the file had, and what the file has now.

    ``found`` is ``None`` where the driver does not tell. ``kept`` are bytes that the driver put into the file: none, if
    it has a cache of its own. Times are nanoseconds.
    """

    device: str
    driver: str
    pipelines: int
    found: int | None
    load_ns: int
    warm_ns: int
    file: Path
    bytes: int
    kept: int

    def as_json(self) -> dict[str, Any]:
        return {**attrs.asdict(self), "file": str(self.file)}


def prepare(
    backend: Backend, requests: Mapping[str, PlanRequest], told: Callable[[str], object] = lambda _: None
) -> Prepared:
    """Load and warm each model as a scheduler would, unload it again, and write the pipeline cache's file.

    ``told`` hears the model before it is loaded.

    Raises:
        InvalidRequest: the file cannot be written; whatever was there before is there still.
        BackendFault: the backend keeps no file.
    """
    load_ns = warm_ns = 0
    device = device_of(backend)
    # A file that can't be written is known before the work.
    _save(device)
    for model, request in requests.items():
        told(model)
        bench = Bench(backend, model, request)
        begin = time.perf_counter_ns()
        try:
            bench.place()
            middle = time.perf_counter_ns()
            bench.warm()
        finally:
            backend.unload(model)
        load_ns += middle - begin
        warm_ns += time.perf_counter_ns() - middle
    file, info, pipelines = _save(device), device.info, device.pipelines
    return Prepared(
        device=info.name,
        driver=info.driver,
        pipelines=pipelines.created,
        found=pipelines.cache_hits if FEEDBACK in info.extensions else None,
        load_ns=load_ns,
        warm_ns=warm_ns,
        file=file,
        bytes=file.stat().st_size,
        kept=max(0, file.stat().st_size - EMPTY),
    )


def _save(device: Device) -> Path:
    file = device.save_cache()
    if file is None:
        raise BackendFault("this Vulkan backend was opened without a folder for its pipeline cache: nothing is kept")
    return file


def device_of(backend: Any) -> Device:
    """The open device of a Vulkan backend. Raises ``BackendFault`` where it is another process's."""
    device = backend.planned
    if not isinstance(device, Device):
        raise BackendFault("this process only plans for a worker's device: it cannot compile for it")
    return device
