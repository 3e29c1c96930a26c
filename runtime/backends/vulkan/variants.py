"""Sizes with which Mesa's CPU driver compiles a kernel once, and not once more for other sizes of what it reads.

llvmpipe compiles anew for a texel view of a buffer whose size is a power of two, and for a view whose size has zeros in
bits 8 to 15: it takes these for a number of mip levels (``lp_sampler_static_texture_state`` of Mesa 22.3). Where an
earlier form of a kernel came from its cache on disk, it does not find a later one there either. So its buffers have
some bytes more, and a view of such a size reaches into what lies behind it. No kernel looks there.
"""

from __future__ import annotations

from .describing import DeviceInfo

SLACK = 512
STEP, PERIOD = 1 << 8, 1 << 16


def buffer_size(info: DeviceInfo, size: int) -> int:
    """Bytes of the VkBuffer for a buffer of ``size`` bytes: more only on a CPU, and never beyond a block."""
    more = size + SLACK
    if more & (more - 1) == 0:
        more += SLACK
    return more if info.kind == "cpu" and more <= info.limits.block else size


def view_size(size: int, room: int) -> int:
    """Bytes of the texel view of ``size`` bytes where there are ``room`` from its beginning on."""
    return size + STEP if size % PERIOD < STEP and size + STEP <= room else size
