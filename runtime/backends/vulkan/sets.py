"""Descriptor sets: what a kernel reads and writes, made once and freed all together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import attrs

from ....actors.errors import BackendFault
from .functions import Handle
from .kernels import Binding
from .link import Link
from .memory import Bound
from .pipelines import TYPES, Pipelines
from .variants import buffer_size, view_size

SETS = 64
"""Sets of one VkDescriptorPool, all with the same bindings."""


def texel_bytes(name: str) -> int:
    """Bytes of a texel of a plain VkFormat: the sum of its components' bits, which its name has."""
    return sum(int(bits) for bits in re.findall(r"[RGBA](\d+)", name)) // 8


@attrs.define(eq=False)
class SetPool:
    """Grows by whole pools; :meth:`free` gives back everything that was made of it."""

    link: Link
    pipelines: Pipelines
    _pools: list[Handle] = attrs.field(factory=list, init=False)
    _views: list[Handle] = attrs.field(factory=list, init=False)
    _current: dict[tuple[Binding, ...], tuple[Handle, int]] = attrs.field(factory=dict, init=False)

    def make(self, kernel: str, index: int, bounds: Sequence[Bound]) -> Handle:
        """Set ``index`` of a kernel over ``bounds``, one for each of its bindings.

        Raises ``BackendFault`` for a range that a binding cannot have on this device.
        """
        bindings = self.pipelines.kernels[kernel].sets[index]
        if len(bindings) != len(bounds):
            raise BackendFault(f"set {index} of kernel {kernel} has {len(bindings)} bindings, {len(bounds)} were given")
        for place, (binding, bound) in enumerate(zip(bindings, bounds, strict=True)):
            self._check(f"binding {place} of set {index} of kernel {kernel}", binding, bound)
        handle = self._allocate(bindings)
        self._write(handle, bindings, bounds)
        return handle

    def free(self) -> None:
        """Free every set and view; doing it again is no error, and the pool can be used anew."""
        for pool in self._pools:
            self.link.destroy("vkDestroyDescriptorPool", pool)
        for view in self._views:
            self.link.destroy("vkDestroyBufferView", view)
        self._pools.clear()
        self._views.clear()
        self._current.clear()

    def _check(self, what: str, binding: Binding, bound: Bound) -> None:
        limits = self.link.limits
        most = limits.max_storage_range
        if binding.format is not None:
            most = limits.max_texel_elements * texel_bytes(binding.format)
        inside = 0 < bound.bytes <= bound.buffer.size - bound.offset and bound.offset >= 0
        if not inside or bound.bytes > most or bound.offset % limits.alignment:
            raise BackendFault(
                f"{what} cannot take {bound.bytes} bytes at offset {bound.offset} of a buffer of {bound.buffer.size} "
                f"bytes: it must lie inside, hold at most {most} bytes and begin at a multiple of {limits.alignment}"
            )

    def _allocate(self, bindings: tuple[Binding, ...]) -> Handle:
        pool, left = self._current.get(bindings, (None, 0))
        if not left:
            pool, left = self._grow(bindings), SETS
        functions, link = self.link.functions, self.link
        layouts = functions.array("VkDescriptorSetLayout", [self.pipelines.set_layout(bindings)])
        info = functions.struct(
            "VkDescriptorSetAllocateInfo", descriptorPool=pool, descriptorSetCount=1, pSetLayouts=layouts
        )
        out = functions.ffi.new("VkDescriptorSet*")
        link.call("vkAllocateDescriptorSets", link.device, info, out)
        self._current[bindings] = pool, left - 1
        return out[0]

    def _grow(self, bindings: tuple[Binding, ...]) -> Handle:
        counts = Counter(TYPES[binding.kind] for binding in bindings)
        functions = self.link.functions
        sizes = functions.ffi.new("VkDescriptorPoolSize[]", [(kind, SETS * count) for kind, count in counts.items()])
        info = functions.struct("VkDescriptorPoolCreateInfo", maxSets=SETS, poolSizeCount=len(counts), pPoolSizes=sizes)
        self._pools.append(self.link.create("vkCreateDescriptorPool", info))
        return self._pools[-1]

    def _write(self, handle: Handle, bindings: tuple[Binding, ...], bounds: Sequence[Bound]) -> None:
        ffi, kept = self.link.functions.ffi, []
        writes = ffi.new("VkWriteDescriptorSet[]", len(bindings))
        kind = self.link.functions.constant("VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET")
        for index, (binding, bound) in enumerate(zip(bindings, bounds, strict=True)):
            write = writes[index]
            write.sType, write.dstSet, write.dstBinding = kind, handle, index
            write.descriptorCount, write.descriptorType = 1, TYPES[binding.kind]
            if binding.kind == "texel":
                kept.append(ffi.new("VkBufferView*", self._view(binding, bound)))
                write.pTexelBufferView = kept[-1]
            else:
                kept.append(ffi.new("VkDescriptorBufferInfo*", (bound.buffer.handle, bound.offset, bound.bytes)))
                write.pBufferInfo = kept[-1]
        self.link.call("vkUpdateDescriptorSets", self.link.device, len(bindings), writes, 0, ffi.NULL)

    def _view(self, binding: Binding, bound: Bound) -> Handle:
        functions, limits = self.link.functions, self.link.limits
        room = buffer_size(self.link.info, bound.buffer.size) - bound.offset
        texels = limits.max_texel_elements * texel_bytes(binding.format or "")
        info = functions.struct(
            "VkBufferViewCreateInfo",
            buffer=bound.buffer.handle,
            format=functions.constant(binding.format or ""),
            offset=bound.offset,
            range=view_size(bound.bytes, min(room, texels)),
        )
        self._views.append(self.link.create("vkCreateBufferView", info))
        return self._views[-1]
