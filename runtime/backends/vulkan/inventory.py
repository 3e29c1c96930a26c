"""The devices of this machine, and which one to use."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from ....actors.errors import InvalidRequest
from .describing import BUDGET, FEEDBACK, DeviceInfo, MemoryType, describe
from .functions import Functions
from .instance import create_instance, destroy_instance, physical_devices
from .library import no_driver

__all__ = ["BUDGET", "FEEDBACK", "DeviceInfo", "MemoryType", "choose", "inventory"]

PREFERENCE = ("discrete", "integrated", "virtual", "other", "cpu")
"""Kinds of device, the best first."""

_LOCK = Lock()


def inventory(functions: Functions) -> tuple[DeviceInfo, ...]:
    """All devices in the loader's order; empty when there is no driver."""
    with _LOCK:
        instance = create_instance(functions)
        if instance is None:
            return ()
        try:
            handles = physical_devices(functions, instance)
            return tuple(describe(functions, handle, index) for index, handle in enumerate(handles))
        finally:
            destroy_instance(functions, instance)


def choose(infos: Iterable[DeviceInfo], wanted: int | None = None) -> DeviceInfo:
    """The device at index ``wanted``, or the best one: discrete, then integrated, virtual, the CPU.

    Raises ``InvalidRequest``: there is none, it cannot be used, or there is no driver at all.
    """
    found = {info.index: info for info in infos}
    if not found:
        raise no_driver()
    if wanted is not None:
        return _wanted(found, wanted)
    usable = [info for info in found.values() if info.unsuitable is None]
    if not usable:
        reasons = "; ".join(f"{info.name}: {info.unsuitable}" for info in found.values())
        raise InvalidRequest(f"no Vulkan device here can be used ({reasons}): install a newer driver", backend="vulkan")
    return min(usable, key=lambda info: (PREFERENCE.index(info.kind), info.index))


def _wanted(found: dict[int, DeviceInfo], wanted: int) -> DeviceInfo:
    if wanted not in found:
        names = ", ".join(f"{info.index} ({info.name})" for info in found.values())
        raise InvalidRequest(
            f"device.index is {wanted}: the Vulkan devices here are {names}; 'coresident devices' lists them",
            backend="vulkan",
            index=wanted,
        )
    info = found[wanted]
    if info.unsuitable is not None:
        raise InvalidRequest(
            f"Vulkan device {wanted} ({info.name}) cannot be used: {info.unsuitable}; choose another", backend="vulkan"
        )
    return info
