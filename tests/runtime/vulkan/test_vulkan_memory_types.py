"""Which memory types are taken, of what drivers offer."""

from __future__ import annotations

import attrs
import pytest
from coresident.actors.errors import BackendFault
from coresident.runtime.backends.vulkan.describing import MemoryType
from coresident.runtime.backends.vulkan.memory_types import choose_types

from support.vulkan_life import device_info


@pytest.mark.parametrize(
    ("types", "heaps", "bits", "chosen"),
    [
        ([(15, 0)], (1,), 1, (0, 0, 0)),
        ([(1, 0), (6, 1), (14, 1), (7, 0)], (8, 16), 0b1111, (0, 2, 0)),
        ([(0, 1), (1, 0), (6, 1)], (8, 16), 0b111, (1, 2, 0)),
        ([(7, 0), (1, 1), (6, 2)], (1, 8, 16), 0b111, (1, 0, 1)),
        ([(1, 0), (1 | 0x20, 0), (2 | 4 | 0x40, 1), (6, 1)], (8, 16), 0b1111, (0, 3, 0)),
        ([(1, 0), (15, 0), (6, 1)], (8, 16), 0b101, (0, 2, 0)),
        ([(6, 0)], (8,), 1, (0, 0, 0)),
    ],
    ids=["cpu", "discrete", "plain first", "small window", "special types", "not allowed", "no local memory"],
)
def test_memory_types_are_local_and_large_for_the_device_coherent_and_cached_for_the_host(
    types, heaps, bits, chosen
) -> None:
    info = attrs.evolve(device_info(), memory_types=tuple(MemoryType(*kind) for kind in types), heaps=heaps)
    assert attrs.astuple(choose_types(info, bits)) == chosen


def test_a_device_without_coherent_memory_for_the_host_is_refused() -> None:
    info = attrs.evolve(device_info(), memory_types=(MemoryType(1, 0), MemoryType(2, 0)), heaps=(8,))
    with pytest.raises(BackendFault, match="no memory type for buffers that the host can map coherently"):
        choose_types(info, 0b11)
