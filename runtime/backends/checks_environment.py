"""Where a check ran: versions, device and limits, for a report that somebody else has to understand."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

from .contract import Backend

if TYPE_CHECKING:
    from .vulkan.profile import Planned

PACKAGES = {"mlx": ("mlx", "mlx-lm", "mlx-metal"), "vulkan": ("vulkan",)}


def environment(backend: Backend) -> dict[str, str | int]:
    """Facts by name, in the order to show them; sizes in bytes."""
    facts: dict[str, str | int] = {
        "coresident": _version("coresident"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "numpy": _version("numpy"),
        "blas": "; ".join(_blas()) or "none that can be asked",
    }
    for name in PACKAGES.get(backend.name, ()):
        facts[name] = _version(name)
    if backend.name == "mlx":
        facts |= _mlx_device()
    if backend.name == "vulkan":
        facts |= _vulkan_device(cast(Any, backend).planned)
    return facts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Linux says it in a file only."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _blas() -> Iterator[str]:
    """The BLAS libraries of this process that can be asked; reference BLAS and Accelerate cannot."""
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    for library in threadpool_info():
        if library.get("user_api") == "blas":
            name = f"{library['internal_api']} {library.get('version') or 'of unknown version'}"
            yield f"{name}, {library['num_threads']} threads"


def _mlx_device() -> dict[str, str | int]:
    """What MLX computes on, and the limits that it tells; the CPU tells none."""
    import mlx.core as mx

    from .mlx.planning import device_limits

    limits = device_limits()
    told: dict[str, Any] = {
        "largest buffer": limits.max_buffer,
        "recommended working set": limits.recommended,
        "device memory": limits.memory,
    }
    facts: dict[str, str | int] = {"mlx device": f"{mx.default_device().type.name}, {limits.device}"}
    return facts | {name: value for name, value in told.items() if value is not None}


def _vulkan_device(device: Planned) -> dict[str, str | int]:
    """The device and its driver, and what bounds a buffer and all of them together."""
    info = device.info
    return {
        "vulkan device": f"{info.kind}, {info.name}",
        "driver": f"{info.driver}, Vulkan {'.'.join(map(str, info.api_version))}",
        "largest buffer": info.limits.block,
        "most buffers": info.limits.max_allocations,
        "device memory": max(info.heaps, default=0),
    }
