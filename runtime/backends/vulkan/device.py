"""An open Vulkan device: memory, pipelines, recordings, submits. Used on the one thread that owns it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import attrs

from .functions import Functions
from .inventory import DeviceInfo
from .kernels import Kernels
from .limits import Limits
from .link import Link
from .memory import Buffer, Memory
from .opening import open_link
from .pipeline_cache import CacheFile
from .pipelines import Pipeline, Pipelines
from .recording import Commands, Recorder, Recording
from .sets import SetPool
from .submitting import Submitter, seconds_for

SHARE = 80
"""Percent of a heap that is the budget where the driver tells none."""


@attrs.define(eq=False)
class Device:
    """One opened device.

    When it is lost, ``fault`` says why, and everything but freeing and closing raises ``DeviceLost``: open a new one.
    """

    link: Link
    memory: Memory
    pipelines: Pipelines
    _recorder: Recorder
    _submitter: Submitter
    _cache: CacheFile | None

    @classmethod
    def open(
        cls,
        functions: Functions,
        info: DeviceInfo,
        *,
        kernels: Kernels,
        cache: Path | None = None,
        share: int = SHARE,
        submit_seconds: int | None = None,
    ) -> Self:
        """Open the device that ``info`` describes, with its limits.

        ``cache`` is the folder of pipeline cache files; without one nothing is read and nothing can be saved.
        ``share`` is the percentage of the heap that may be used, and ``submit_seconds`` how long a submit may take.

        Raises ``InvalidRequest``, ``BackendFault`` or ``DeviceLost``; nothing is left open then.
        """
        seconds = submit_seconds or seconds_for(info.kind)
        link, physical = open_link(functions, info)
        try:
            memory = Memory(link, physical, share)
            file = CacheFile.of(cache, info, kernels.digest) if cache is not None else None
            pipelines = Pipelines(link, kernels, file.create(link) if file is not None else CacheFile.empty(link))
            pool = functions.struct("VkCommandPoolCreateInfo", queueFamilyIndex=info.queue_family)
            recorder = Recorder(link, pipelines, link.create("vkCreateCommandPool", pool))
            queue = functions.ffi.new("VkQueue*")
            link.call("vkGetDeviceQueue", link.device, info.queue_family, 0, queue)
            fence = link.create("vkCreateFence", functions.struct("VkFenceCreateInfo"))
            return cls(link, memory, pipelines, recorder, Submitter(link, queue[0], fence, seconds), file)
        except BaseException:
            link.handles.close()
            raise

    @property
    def info(self) -> DeviceInfo:
        return self.link.info

    @property
    def limits(self) -> Limits:
        return self.link.info.limits

    @property
    def fault(self) -> str | None:
        """Why the device was lost."""
        return self.link.fault

    @property
    def allocations(self) -> int:
        """Buffers that live."""
        return self.memory.allocations

    @property
    def allocated(self) -> int:
        """Bytes that their memory takes."""
        return self.memory.allocated

    @property
    def submits(self) -> int:
        return self._submitter.submits

    def requirement(self, size: int) -> int:
        """Bytes that a buffer of ``size`` bytes takes; nothing is allocated. Any thread may ask."""
        return self.memory.requirement(size)

    def budget(self) -> int:
        """Bytes that can still be allocated in the device's memory."""
        return self.memory.budget()

    def allocate(self, size: int, what: str, host: bool = False) -> Buffer:
        """A buffer for ``what``, mapped for the host on demand. Raises ``BudgetExceeded``."""
        return self.memory.allocate(size, what, host)

    def pipeline(self, kernel: str) -> Pipeline:
        """The pipeline of a kernel, made on first use."""
        return self.pipelines.get(kernel)

    def sets(self) -> SetPool:
        """A new pool of descriptor sets."""
        return SetPool(self.link, self.pipelines)

    def record(self) -> Recording:
        """A new recording, to be used in a ``with`` block and finished."""
        return self._recorder.begin()

    def run(self, commands: Sequence[Commands]) -> None:
        """Submit recordings and wait until they have finished."""
        self._submitter.run(commands)

    def save_cache(self) -> Path | None:
        """Write the pipeline cache's file; its path, or ``None`` where there is no folder for it."""
        return self._cache.save(self.link, self.pipelines.cache) if self._cache is not None else None

    def close(self) -> None:
        """Free everything; doing it again is no error. Views of buffers are gone then."""
        self.memory.hide()
        self.link.handles.close()
