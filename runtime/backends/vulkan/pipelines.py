"""Compute pipelines, made once on first use, with the layouts of their descriptor sets."""

from __future__ import annotations

import attrs

from ....actors.errors import BackendFault
from .describing import FEEDBACK
from .functions import Handle
from .kernels import Binding, Kernel, Kernels
from .link import Link

COMPUTE_STAGE = 0x20
"""VK_SHADER_STAGE_COMPUTE_BIT."""

TYPES = {"texel": 4, "storage": 7}
"""VkDescriptorType by a binding's kind."""

_CACHE_HIT = 0x1 | 0x2
"""VkPipelineCreationFeedbackFlags: valid, and found in the pipeline cache that was given."""


@attrs.frozen(eq=False)
class Pipeline:
    """A kernel's pipeline and its layout."""

    kernel: Kernel
    handle: Handle
    layout: Handle


@attrs.define(eq=False)
class Pipelines:
    """``created`` pipelines so far, ``cache_hits`` of which the driver took from the cache, where it says so."""

    link: Link
    kernels: Kernels
    cache: Handle
    created: int = attrs.field(default=0, init=False)
    cache_hits: int = attrs.field(default=0, init=False)
    _pipelines: dict[str, Pipeline] = attrs.field(factory=dict, init=False)
    _sets: dict[tuple[Binding, ...], Handle] = attrs.field(factory=dict, init=False)
    _layouts: dict[tuple[tuple[tuple[Binding, ...], ...], int], Handle] = attrs.field(factory=dict, init=False)

    def get(self, name: str) -> Pipeline:
        """The pipeline of kernel ``name``."""
        if name not in self._pipelines:
            kernel = self.kernels[name]
            self._check(kernel)
            layout = self._layout(kernel)
            self._pipelines[name] = Pipeline(kernel, self._create(kernel, layout), layout)
            self.created += 1
        return self._pipelines[name]

    def set_layout(self, bindings: tuple[Binding, ...]) -> Handle:
        """The layout of a set with these bindings, numbered from 0; kernels with equal ones share it."""
        if bindings not in self._sets:
            functions = self.link.functions
            entries = [
                {
                    "binding": index,
                    "descriptorType": TYPES[binding.kind],
                    "descriptorCount": 1,
                    "stageFlags": COMPUTE_STAGE,
                }
                for index, binding in enumerate(bindings)
            ]
            array = functions.ffi.new("VkDescriptorSetLayoutBinding[]", entries)
            info = functions.struct("VkDescriptorSetLayoutCreateInfo", bindingCount=len(entries), pBindings=array)
            self._sets[bindings] = self.link.create("vkCreateDescriptorSetLayout", info)
        return self._sets[bindings]

    def _layout(self, kernel: Kernel) -> Handle:
        key = kernel.sets, kernel.push_bytes
        if key not in self._layouts:
            functions = self.link.functions
            sets = functions.array("VkDescriptorSetLayout", [self.set_layout(bindings) for bindings in kernel.sets])
            push = functions.struct("VkPushConstantRange", stageFlags=COMPUTE_STAGE, offset=0, size=kernel.push_bytes)
            info = functions.struct(
                "VkPipelineLayoutCreateInfo",
                setLayoutCount=len(kernel.sets),
                pSetLayouts=sets,
                pushConstantRangeCount=1 if kernel.push_bytes else 0,
                pPushConstantRanges=push,
            )
            self._layouts[key] = self.link.create("vkCreatePipelineLayout", info, kernel.name)
        return self._layouts[key]

    def _create(self, kernel: Kernel, layout: Handle) -> Handle:
        functions, ffi, link = self.link.functions, self.link.functions.ffi, self.link
        code = ffi.from_buffer("uint32_t[]", kernel.spirv)
        info = functions.struct("VkShaderModuleCreateInfo", codeSize=len(kernel.spirv), pCode=code)
        module = link.create("vkCreateShaderModule", info, kernel.name)
        try:
            entry = ffi.new("char[]", b"main")
            stage = functions.struct("VkPipelineShaderStageCreateInfo", stage=COMPUTE_STAGE, module=module, pName=entry)
            whole, single = ffi.new("VkPipelineCreationFeedback*"), ffi.new("VkPipelineCreationFeedback*")
            feedback = functions.struct(
                "VkPipelineCreationFeedbackCreateInfo",
                pPipelineCreationFeedback=whole,
                pipelineStageCreationFeedbackCount=1,
                pPipelineStageCreationFeedbacks=single,
            )
            told = feedback if FEEDBACK in link.info.extensions else ffi.NULL
            create = functions.struct("VkComputePipelineCreateInfo", pNext=told, stage=stage[0], layout=layout)
            out = ffi.new("VkPipeline*")
            link.call("vkCreateComputePipelines", link.device, self.cache, 1, create, ffi.NULL, out, what=kernel.name)
        finally:
            link.destroy("vkDestroyShaderModule", module)
        link.handles.add("vkDestroyPipeline", out[0])
        self.cache_hits += whole.flags & _CACHE_HIT == _CACHE_HIT
        return out[0]

    def _check(self, kernel: Kernel) -> None:
        """Refuse a kernel that binds more than this device can; all other needs are below what every device has."""
        used = sum(binding.kind == "storage" for bindings in kernel.sets for binding in bindings)
        most = self.link.limits.max_storage_bindings
        if used > most:
            raise BackendFault(
                f"kernel {kernel.name} binds {used} storage buffers, and {self.link.info.name} allows {most}: use "
                "another Vulkan device"
            )
