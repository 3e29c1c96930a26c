"""A device as another process found it: enough to plan for it, and nothing to compute with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from ....actors.errors import BackendFault
from .describing import DeviceInfo
from .limits import Limits
from .variants import buffer_size

TRIED = tuple(sorted({max(1, (1 << power) + more) for power in range(25) for more in (-1, 0, 1, 1 << power >> 1)}))
"""Sizes whose requirements are asked for: around powers of two up to 16 MiB, and between them."""

LARGEST_GRAIN = 1 << 21

GPU_PERCENT = 80
"""Of a heap whose driver tells no budget: the rest is the desktop's and the driver's own."""

CPU_PERCENT = 100


class Planned(Protocol):
    """What a plan needs of a device."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def limits(self) -> Limits: ...

    def requirement(self, size: int) -> int:
        """Bytes that an allocation for a buffer of ``size`` bytes takes."""
        ...

    def budget(self) -> int:
        """Bytes that can be allocated now."""
        ...


@attrs.frozen
class Profile:
    """``free`` bytes could be allocated when the device was asked; each allocation is a multiple of ``grain`` bytes."""

    info: DeviceInfo
    free: int
    grain: int

    @classmethod
    def of(cls, device: Planned) -> Profile:
        """Ask a device. Raises ``BackendFault`` where what allocations take follows no grain."""
        info = device.info
        return cls(info, device.budget(), grain_of(device.requirement, lambda size: buffer_size(info, size)))

    @property
    def limits(self) -> Limits:
        return self.info.limits

    def requirement(self, size: int) -> int:
        """Bytes that an allocation for a buffer of ``size`` bytes takes, never too few."""
        return rounded(buffer_size(self.info, size), self.grain)

    def budget(self) -> int:
        return self.free


def share_of(info: DeviceInfo, configured: int | None) -> int:
    """Percent of the heap that may be used where the driver tells no budget."""
    if configured is not None:
        return configured
    return CPU_PERCENT if info.kind == "cpu" else GPU_PERCENT


def rounded(size: int, grain: int) -> int:
    """``size`` up to a multiple of ``grain``."""
    return -(-size // grain) * grain


def grain_of(requirement: Callable[[int], int], whole: Callable[[int], int] = lambda size: size) -> int:
    """The smallest power of two whose multiples are no less than what is required, for every size that is tried.

    ``whole`` are the bytes of the VkBuffer that is made for a size.

    Raises ``BackendFault``: there is none up to 2 MiB.
    """
    required = {whole(size): requirement(size) for size in TRIED}
    grain = 1
    while any(rounded(size, grain) < need for size, need in required.items()):
        grain *= 2
        if grain > LARGEST_GRAIN:
            size, need = max(required.items(), key=lambda pair: pair[1] - pair[0])
            raise BackendFault(
                f"this Vulkan driver takes {need} bytes for a buffer of {size}: the memory of a worker process cannot "
                "be planned with it; set device.executor to 'thread'",
                asked=size,
                required=need,
            )
    return grain
