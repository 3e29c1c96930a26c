"""Which of a device's memory types holds what; pure.

Source: "Device Memory" in the Vulkan specification. Types that want a feature of their own (protected, lazily
allocated, vendor's coherence) are never taken.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ....actors.errors import BackendFault
from .inventory import DeviceInfo

DEVICE_LOCAL = 1
HOST_VISIBLE = 2
HOST_COHERENT = 4
HOST_CACHED = 8
PLAIN = DEVICE_LOCAL | HOST_VISIBLE | HOST_COHERENT | HOST_CACHED


@attrs.frozen
class MemoryTypes:
    """Numbers of the types for the device's memory and for memory that the host maps, and the heap of the first."""

    device: int
    host: int
    device_heap: int


def choose_types(info: DeviceInfo, bits: int) -> MemoryTypes:
    """The types for buffers that may have the types of ``bits``.

    The device's memory is local to it, of the largest heap. The host's is coherent, so that nothing needs to be
    flushed, and cached where possible, as results are read from it.

    Raises ``BackendFault`` when the driver offers no such type.
    """
    plain = [index for index, kind in enumerate(info.memory_types) if bits >> index & 1 and kind.flags & ~PLAIN == 0]
    local = [index for index in plain if info.memory_types[index].flags & DEVICE_LOCAL]
    coherent = HOST_VISIBLE | HOST_COHERENT
    visible = [index for index in plain if info.memory_types[index].flags & coherent == coherent]
    if not plain or not visible:
        raise BackendFault(
            f"Vulkan device {info.name} offers no memory type for buffers that the host can map coherently (types "
            f"{[kind.flags for kind in info.memory_types]}, allowed {bits:#x}): use another device or driver"
        )
    device = _largest(info, local or plain)
    host = next((index for index in visible if info.memory_types[index].flags & HOST_CACHED), visible[0])
    return MemoryTypes(device, host, info.memory_types[device].heap)


def _largest(info: DeviceInfo, types: Iterable[int]) -> int:
    """The first type of the largest heap; the specification lists types with fewer properties first."""
    return max(types, key=lambda index: (info.heaps[info.memory_types[index].heap], -index))
