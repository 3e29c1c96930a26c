"""The limits of a device that decide how memory is cut."""

from __future__ import annotations

import attrs

TEXEL = 16
"""Bytes of the largest texel that kernels read."""

ALIGNMENT = 64
"""Least alignment of anything inside a buffer: a cache line, and a multiple of every texel."""


@attrs.frozen
class Limits:
    """Bytes, counts and elements of VkPhysicalDeviceLimits and of maintenance3 and 4.

    ``max_buffer_size`` is ``None`` where the driver has no such limit to tell. ``alignment`` holds for offsets of
    storage and texel ranges alike. ``max_groups`` is the least of the three dimensions; ``max_storage_bindings`` are
    those of one kernel. ``texels`` says whether kernels read through texel buffers on this device: only then does
    ``max_texel_elements`` count, which is small on some GPUs.
    """

    max_storage_range: int
    max_texel_elements: int
    max_buffer_size: int | None
    max_allocation: int
    max_allocations: int
    alignment: int
    max_groups: int
    max_storage_bindings: int
    texels: bool = True

    @property
    def block(self) -> int:
        """Bytes of the largest piece that one binding and one allocation can hold, a multiple of the alignment."""
        limits = [self.max_storage_range, self.max_allocation, self.texel_bytes(TEXEL)]
        if self.max_buffer_size is not None:
            limits.append(self.max_buffer_size)
        return min(limits) // self.alignment * self.alignment

    def texel_bytes(self, texel: int) -> int:
        """Bytes that kernels can read of one binding as texels of so many."""
        return texel * self.max_texel_elements if self.texels else self.max_storage_range

    def aligned(self, size: int) -> int:
        """``size`` rounded up to the alignment."""
        return -(-size // self.alignment) * self.alignment
