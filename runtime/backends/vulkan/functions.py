"""The seam: one table of raw Vulkan functions, which tests replace entry by entry.

Raw cffi functions take 1.4-2.5 us a call; the binding's wrappers take 6-14 us and lose pointers inside of structs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import attrs

from . import results

Handle: TypeAlias = Any
"""A Vulkan handle, or a cffi pointer or struct: cffi has no static types."""

NAMES = (
    *("vkEnumerateInstanceExtensionProperties", "vkCreateInstance", "vkDestroyInstance", "vkEnumeratePhysicalDevices"),
    *("vkGetPhysicalDeviceProperties", "vkGetPhysicalDeviceProperties2", "vkGetPhysicalDeviceMemoryProperties"),
    *("vkGetPhysicalDeviceMemoryProperties2", "vkGetPhysicalDeviceQueueFamilyProperties"),
    *("vkEnumerateDeviceExtensionProperties", "vkCreateDevice", "vkDestroyDevice", "vkGetDeviceQueue"),
    *("vkCreateBuffer", "vkDestroyBuffer", "vkGetBufferMemoryRequirements", "vkBindBufferMemory"),
    *("vkAllocateMemory", "vkFreeMemory", "vkMapMemory", "vkCreateBufferView", "vkDestroyBufferView"),
    *("vkCreateShaderModule", "vkDestroyShaderModule", "vkCreatePipelineCache", "vkDestroyPipelineCache"),
    *("vkGetPipelineCacheData", "vkCreateComputePipelines", "vkDestroyPipeline"),
    *("vkCreateDescriptorSetLayout", "vkDestroyDescriptorSetLayout"),
    *("vkCreatePipelineLayout", "vkDestroyPipelineLayout", "vkCreateDescriptorPool", "vkDestroyDescriptorPool"),
    *("vkAllocateDescriptorSets", "vkUpdateDescriptorSets", "vkCreateCommandPool", "vkDestroyCommandPool"),
    *("vkAllocateCommandBuffers", "vkFreeCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer"),
    *("vkCmdBindPipeline", "vkCmdBindDescriptorSets", "vkCmdPushConstants", "vkCmdDispatch"),
    *("vkCmdPipelineBarrier", "vkCmdCopyBuffer", "vkCreateFence", "vkDestroyFence", "vkResetFences"),
    *("vkQueueSubmit", "vkWaitForFences"),
)
"""Every function the backend calls; all are core of Vulkan 1.1."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9])")


@attrs.frozen(eq=False)
class Functions:
    """Raw functions by name, the binding's ``ffi``, and its constants."""

    ffi: Any
    table: dict[str, Callable[..., Any]] = attrs.field(repr=False)
    constants: Any = attrs.field(repr=False)
    _kept: WeakKeyDictionary[Any, tuple[Any, ...]] = attrs.field(factory=WeakKeyDictionary, init=False, repr=False)
    _types: dict[str, int | None] = attrs.field(factory=dict, init=False, repr=False)

    def constant(self, name: str) -> int:
        """The number of a Vulkan constant."""
        return int(getattr(self.constants, name))

    def call(self, name: str, *args: Any, what: str = "") -> int:
        """Run a raw function; its VkResult, 0 for one that returns nothing.

        A negative one raises our error, which names the function and ``what`` it was for.
        """
        result = self.table[name](*args)
        if result is None:
            return 0
        if result < 0:
            raise results.fault(name, int(result), what)
        return int(result)

    def struct(self, kind: str, **fields: Any) -> Handle:
        """A pointer to a new struct with its ``sType``; it keeps alive what its fields point to."""
        number = self._type_of(kind)
        if number is not None:
            fields["sType"] = number
        made = self.ffi.new(f"{kind}*", fields)
        self._kept[made] = tuple(fields.values())
        return made

    def array(self, kind: str, values: Any) -> Handle:
        """A new array of ``kind``; it keeps alive what its values point to."""
        values = tuple(values)
        made = self.ffi.new(f"{kind}[]", [value[0] if self._is_struct(kind, value) else value for value in values])
        self._kept[made] = values
        return made

    def _type_of(self, kind: str) -> int | None:
        """The ``sType`` of a struct that has one: without it, drivers pass over the struct and fill nothing in."""
        if kind not in self._types:
            typed = any(name == "sType" for name, _ in self.ffi.typeof(kind).fields)
            self._types[kind] = self.constant(type_constant(kind)) if typed else None
        return self._types[kind]

    def _is_struct(self, kind: str, value: Any) -> bool:
        return isinstance(value, self.ffi.CData) and self.ffi.typeof(value) is self.ffi.typeof(f"{kind}*")


def type_constant(kind: str) -> str:
    """``VkBufferCreateInfo`` to ``VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO``."""
    return f"VK_STRUCTURE_TYPE_{_WORDS.sub('_', kind.removeprefix('Vk')).upper()}"
