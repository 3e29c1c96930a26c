"""Buffers, each with memory of its own, counted against the device's limits and its budget.

A plan asks for requirements before anything is allocated: an unbound buffer takes no memory.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from weakref import WeakSet

import attrs
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import BackendFault, BudgetExceeded
from .describing import BUDGET
from .functions import Handle
from .link import Link
from .memory_types import MemoryTypes, choose_types
from .results import MEMORY
from .variants import buffer_size

USAGE = 0x1 | 0x2 | 0x4 | 0x20
"""VkBufferUsageFlags: transfer source and target, uniform texel, storage."""


@attrs.define(eq=False)
class Buffer:
    """A buffer of ``size`` bytes whose memory takes ``bytes``; ``view`` is its mapped memory where the host sees it.

    Arrays made of ``view`` must not be touched after :meth:`free`: the memory is gone then.
    """

    size: int
    bytes: int
    handle: Handle
    view: NDArray[np.uint8] | None = attrs.field(repr=False)
    _memory: Handle
    _owner: Memory = attrs.field(repr=False)
    _heap: int
    _freed: bool = attrs.field(default=False, init=False)

    def free(self) -> None:
        """Give the memory back; doing it again is no error."""
        self.view = None
        if not self._freed:
            self._freed = True
            self._owner.forget(self, self._memory, self._heap)

    def bound(self, offset: int = 0, size: int | None = None) -> Bound:
        """A range of it, by default up to its end."""
        return Bound(self, offset, self.size - offset if size is None else size)


@attrs.frozen(eq=False)
class Bound:
    """``bytes`` of a buffer from ``offset`` on."""

    buffer: Buffer
    offset: int
    bytes: int


@attrs.define(eq=False)
class Memory:
    """Allocates; ``share`` is the percentage of the heap that counts as the budget where the driver tells none."""

    link: Link
    physical: Handle
    share: int
    types: MemoryTypes = attrs.field(init=False)
    allocations: int = attrs.field(default=0, init=False)
    allocated: int = attrs.field(default=0, init=False)
    _heaps: dict[int, int] = attrs.field(factory=dict, init=False)
    _living: WeakSet[Buffer] = attrs.field(factory=WeakSet, init=False)
    _requirements: dict[int, int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.types = choose_types(self.link.info, self._probe(self.link.limits.alignment)[1])

    def requirement(self, size: int) -> int:
        """Bytes that a buffer of ``size`` bytes takes; nothing is allocated. Any thread may ask.

        What no buffer may be as large as is answered as itself, so that a plan shows it.
        """
        if self._too_large(size):
            return self.link.limits.aligned(size)
        with self.link.handles.lock:
            if size not in self._requirements:
                self._requirements[size] = self._probe(size)[0]
            return self._requirements[size]

    def budget(self) -> int:
        """Bytes that can still be allocated for the device."""
        heap = self.types.device_heap
        if BUDGET not in self.link.info.extensions:
            size = self.link.info.heaps[heap] * self.share // 100
            return max(0, size - self._heaps.get(heap, 0))
        functions = self.link.functions
        budget = functions.struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
        both = functions.struct("VkPhysicalDeviceMemoryProperties2", pNext=budget)
        self.link.call("vkGetPhysicalDeviceMemoryProperties2", self.physical, both)
        return max(0, int(budget.heapBudget[heap]) - int(budget.heapUsage[heap]))

    def allocate(self, size: int, what: str, host: bool = False) -> Buffer:
        """A buffer of ``size`` bytes for ``what``: in the device's memory, or mapped for the host.

        Raises:
            BudgetExceeded: a limit of the device, or its memory, is too small; nothing is left behind.
        """
        self._admit(size, what)
        link, ffi = self.link, self.link.functions.ffi
        kind = self.types.host if host else self.types.device
        with ExitStack() as undo:
            handle = self._create(size, what)
            undo.callback(link.destroy, "vkDestroyBuffer", handle)
            needed = self._needs(handle).size
            memory = self._allocate(needed, kind, what)
            undo.callback(link.destroy, "vkFreeMemory", memory)
            link.call("vkBindBufferMemory", link.device, handle, memory, 0, what=what)
            view = None
            if host:
                # VK_WHOLE_SIZE overflows in the binding, so the size is said.
                out = ffi.new("void**")
                link.call("vkMapMemory", link.device, memory, 0, size, 0, out, what=what)
                view = np.frombuffer(ffi.buffer(out[0], size), dtype=np.uint8)
            undo.pop_all()
        heap = link.info.memory_types[kind].heap
        self._count(1, needed, heap)
        buffer = Buffer(size, needed, handle, view, memory, self, heap)
        self._living.add(buffer)
        return buffer

    def forget(self, buffer: Buffer, memory: Handle, heap: int) -> None:
        """Destroy a buffer and free its memory."""
        self._living.discard(buffer)
        self.link.destroy("vkDestroyBuffer", buffer.handle)
        self.link.destroy("vkFreeMemory", memory)
        self._count(-1, -buffer.bytes, heap)

    def hide(self) -> None:
        """Take away the view of every buffer that lives, before its memory goes with the device."""
        for buffer in self._living:
            buffer.view = None

    def _count(self, allocations: int, size: int, heap: int) -> None:
        self.allocations += allocations
        self.allocated += size
        self._heaps[heap] = self._heaps.get(heap, 0) + size

    def _too_large(self, size: int) -> bool:
        limits = self.link.limits
        return size > limits.max_allocation or (limits.max_buffer_size is not None and size > limits.max_buffer_size)

    def _admit(self, size: int, what: str) -> None:
        limits, asked = self.link.limits, self.requirement(size)
        if self._too_large(size) or asked > limits.max_allocation:
            most = min(limits.max_allocation, limits.max_buffer_size or limits.max_allocation)
            raise BudgetExceeded(what, asked, most, "the device cannot allocate it in one piece; load less")
        if self.allocations >= limits.max_allocations:
            raise BudgetExceeded(
                what,
                self.allocations + 1,
                limits.max_allocations,
                "the device allows no more; load less",
                "allocations",
            )

    def _allocate(self, size: int, kind: int, what: str) -> Handle:
        link = self.link
        info = link.functions.struct("VkMemoryAllocateInfo", allocationSize=size, memoryTypeIndex=kind)
        out = link.functions.ffi.new("VkDeviceMemory*")
        try:
            link.call("vkAllocateMemory", link.device, info, link.functions.ffi.NULL, out, what=what)
        except BackendFault as error:
            if error.details.get("result") not in MEMORY:
                raise
            raise BudgetExceeded(what, size, 0, f"{error}; {self.budget()} bytes were thought free") from error
        link.handles.add("vkFreeMemory", out[0])
        return out[0]

    def _create(self, size: int, what: str) -> Handle:
        whole = buffer_size(self.link.info, size)
        info = self.link.functions.struct("VkBufferCreateInfo", size=whole, usage=USAGE)
        return self.link.create("vkCreateBuffer", info, what)

    def _needs(self, handle: Handle) -> Any:
        needs = self.link.functions.ffi.new("VkMemoryRequirements*")
        self.link.call("vkGetBufferMemoryRequirements", self.link.device, handle, needs)
        return needs

    def _probe(self, size: int) -> tuple[int, int]:
        """Bytes that a buffer takes, and the bits of the memory types that it may have."""
        handle = self._create(size, "a plan")
        try:
            needs = self._needs(handle)
            return int(needs.size), int(needs.memoryTypeBits)
        finally:
            self.link.destroy("vkDestroyBuffer", handle, unused=True)
