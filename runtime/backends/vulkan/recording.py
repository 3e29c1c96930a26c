"""Command buffers: recorded once, submitted again and again.

A recording begins and ends with a barrier, so recordings that are submitted one after another see each other's
writes, and so does the host when they have finished. What lies inside of one is ordered by :meth:`Recording.barrier`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

import attrs

from ....actors.errors import BackendFault
from .dispatches import Dispatch
from .functions import Handle
from .link import Link
from .memory import Buffer
from .pipelines import COMPUTE_STAGE, Pipeline, Pipelines

COMPUTE_POINT = 1
"""VK_PIPELINE_BIND_POINT_COMPUTE."""

FROM_STAGES = 0x800 | 0x1000
"""VkPipelineStageFlags: compute shader, transfer."""

TO_STAGES = FROM_STAGES | 0x4000
"""The same, and the host."""

WRITES = 0x40 | 0x1000
"""VkAccessFlags: shader and transfer writes."""

ANY = WRITES | 0x20 | 0x800 | 0x2000
"""The same; reads of shaders, transfers and the host."""


@attrs.define(eq=False)
class Commands:
    """A finished recording; it may run once at a time."""

    handle: Handle
    _recorder: Recorder
    _freed: bool = attrs.field(default=False, init=False)

    def free(self) -> None:
        """Free it; doing it again is no error. It must not be running."""
        if not self._freed:
            self._freed = True
            self._recorder.give_back(self.handle)


@attrs.define(eq=False)
class Recorder:
    """Makes recordings on one device, all from one pool."""

    link: Link
    pipelines: Pipelines
    pool: Handle
    barrier: Handle = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.barrier = self.link.functions.struct("VkMemoryBarrier", srcAccessMask=WRITES, dstAccessMask=ANY)

    def begin(self) -> Recording:
        """A new recording."""
        functions, link = self.link.functions, self.link
        info = functions.struct("VkCommandBufferAllocateInfo", commandPool=self.pool, level=0, commandBufferCount=1)
        out = functions.ffi.new("VkCommandBuffer*")
        link.call("vkAllocateCommandBuffers", link.device, info, out)
        begin = functions.struct("VkCommandBufferBeginInfo")
        try:
            link.call("vkBeginCommandBuffer", out[0], begin)
        except Exception:
            self.give_back(out[0])
            raise
        return Recording(self, out[0])

    def give_back(self, handle: Handle) -> None:
        """Free a command buffer; one that a submit may use, or that went with its pool, is left alone."""
        if self.link.handles.usable:
            functions = self.link.functions
            handles = functions.array("VkCommandBuffer", [handle])
            functions.call("vkFreeCommandBuffers", self.link.device, self.pool, 1, handles)


class Recording:
    """Commands that are being recorded; left by an error, it is freed."""

    def __init__(self, recorder: Recorder, handle: Handle) -> None:
        self._recorder, self._handle = recorder, handle
        self._bound: Pipeline | None = None
        self._table, self._ffi = recorder.link.functions.table, recorder.link.functions.ffi
        self._finished = False
        self.barrier()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.give_up()

    def give_up(self) -> None:
        """Free it as it is, also when its device was closed meanwhile; after its end, nothing happens."""
        if not self._finished:
            self._finished = True
            self._recorder.give_back(self._handle)

    def dispatch(self, dispatch: Dispatch, sets: Sequence[Handle | None]) -> None:
        """Run a kernel over its groups. ``sets`` has ``None`` where the kernel binds nothing."""
        most = self._recorder.link.limits.max_groups
        if not all(0 < groups <= most for groups in dispatch.groups):
            raise BackendFault(f"kernel {dispatch.kernel} with {dispatch.groups} groups: 1 to {most} are possible")
        self._prepare(dispatch, sets)
        self._table["vkCmdDispatch"](self._handle, *dispatch.groups)

    def barrier(self) -> None:
        """What is recorded from here on sees all that was written before."""
        table, null = self._table, self._ffi.NULL
        barrier = self._recorder.barrier
        table["vkCmdPipelineBarrier"](self._handle, FROM_STAGES, TO_STAGES, 0, 1, barrier, 0, null, 0, null)

    def copy(self, source: Buffer, target: Buffer, regions: Iterable[tuple[int, int, int]]) -> None:
        """Copy regions of (offset in the source, offset in the target, bytes), which must not overlap."""
        wanted = list(regions)
        for start, to, size in wanted:
            if min(start, to) < 0 or size <= 0 or start + size > source.size or to + size > target.size:
                raise BackendFault(
                    f"a copy of {size} bytes from {start} of {source.size} to {to} of {target.size} is out of range"
                )
        if wanted:
            array = self._ffi.new("VkBufferCopy[]", wanted)
            self._table["vkCmdCopyBuffer"](self._handle, source.handle, target.handle, len(wanted), array)

    def finish(self) -> Commands:
        """End the recording and hand it over."""
        self.barrier()
        self._finished = True
        try:
            self._recorder.link.call("vkEndCommandBuffer", self._handle)
        except Exception:
            self._recorder.give_back(self._handle)
            raise
        return Commands(self._handle, self._recorder)

    def _prepare(self, dispatch: Dispatch, sets: Sequence[Handle | None]) -> None:
        pipeline = self._recorder.pipelines.get(dispatch.kernel)
        if pipeline is not self._bound:
            self._table["vkCmdBindPipeline"](self._handle, COMPUTE_POINT, pipeline.handle)
            self._bound = pipeline
        kernel, null = pipeline.kernel, self._ffi.NULL
        for index, (handle, _) in enumerate(zip(sets, kernel.sets, strict=True)):
            if handle is not None:
                one = self._ffi.new("VkDescriptorSet*", handle)
                self._table["vkCmdBindDescriptorSets"](
                    self._handle, COMPUTE_POINT, pipeline.layout, index, 1, one, 0, null
                )
        if len(dispatch.push) != kernel.push_bytes:
            raise BackendFault(
                f"kernel {kernel.name} takes {kernel.push_bytes} bytes of constants, not {len(dispatch.push)}"
            )
        if dispatch.push:
            push = self._ffi.from_buffer(dispatch.push)
            self._table["vkCmdPushConstants"](self._handle, pipeline.layout, COMPUTE_STAGE, 0, len(push), push)
