"""Which physical device a backend computes on, and how many bytes that device has.

Backends that use the machine's own memory share one device, ``host``, whatever they are called: NumPy on the CPU, and
MLX and Vulkan on the CPU or on a GPU that has no memory of its own. Any other GPU is known by its UUID, so that two
numbers for it are one device. The modelled device holds nothing, and is not counted unless the configuration says so.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import attrs

from ..backends.vulkan.describing import DeviceInfo
from ..backends.vulkan.profile import Planned
from ..config import MODELLED, DeviceConfig

HOST = "host"
ON_HOST = ("cpu", "integrated")
"""Kinds of Vulkan devices whose memory is the machine's."""

DEVICE_LOCAL = 1
"""VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT."""


@attrs.frozen
class Physical:
    """A device by its id, and its bytes; 0 where nothing is known to be exceeded."""

    id: str
    bytes: int


def physical_of(device: DeviceConfig, planned: Planned | None = None) -> Physical:
    """What a configuration says, and what is found where it says nothing: here, or by what a backend plans with."""
    found = _found(device.backend) if planned is None else _vulkan(planned.info)
    return Physical(device.id or found.id, device.physical or found.bytes)


def host_memory() -> int:
    """Bytes of memory of this machine; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def _found(backend: str) -> Physical:
    if backend == MODELLED:
        return Physical(MODELLED, 0)
    if backend == "mlx" and sys.platform != "darwin":
        return _mlx(importlib.import_module("mlx.core"))
    return Physical(HOST, host_memory())


def _vulkan(info: DeviceInfo) -> Physical:
    """A CPU or a GPU; the memory of a GPU is that of its heaps that are local to it."""
    if info.kind in ON_HOST:
        return Physical(HOST, host_memory())
    local = {kind.heap for kind in info.memory_types if kind.flags & DEVICE_LOCAL}
    return Physical(info.uuid, sum(info.heaps[heap] for heap in local))


def _mlx(core: Any) -> Physical:
    """The default device of MLX outside macOS: the CPU, or a discrete GPU."""
    device = core.default_device()
    if device.type == core.DeviceType.cpu:
        return Physical(HOST, host_memory())
    info = core.device_info(device)
    name = info.get("uuid") or info.get("device_name") or "gpu"
    return Physical(str(name), int(info.get("total_memory") or info.get("memory_size") or 0))
