"""Running recordings: one submit, one fence, waits that end."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ....actors.errors import BackendFault, CoresidentError
from .functions import Handle
from .link import WAIT_NS, Link
from .recording import Commands
from .results import MEMORY, Result

CPU_SECONDS = 120
CARD_SECONDS = 20


def seconds_for(kind: str) -> int:
    """How long a submit may take on a kind of device; cards have watchdogs of their own."""
    return CPU_SECONDS if kind == "cpu" else CARD_SECONDS


@attrs.define(eq=False)
class Submitter:
    """The queue of a device; ``seconds`` is the longest a submit may take. Counts ``submits``."""

    link: Link
    queue: Handle
    fence: Handle
    seconds: int
    submits: int = attrs.field(default=0, init=False)
    _fences: Handle = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._fences = self.link.functions.ffi.new("VkFence[]", [self.fence])

    def run(self, commands: Sequence[Commands]) -> None:
        """Submit, and wait until everything has finished.

        Raises:
            DeviceLost: the driver says so, or nothing finished in time; the device is lost for good.
            BackendFault: the driver had no memory for the submit; nothing ran.
        """
        functions, link = self.link.functions, self.link
        buffers = functions.ffi.new("VkCommandBuffer[]", [one.handle for one in commands])
        info = functions.struct("VkSubmitInfo", commandBufferCount=len(commands), pCommandBuffers=buffers)
        link.call("vkResetFences", link.device, 1, self._fences)
        link.handles.pending = self.fence
        try:
            link.call("vkQueueSubmit", self.queue, 1, info, self.fence)
        except CoresidentError as error:
            link.handles.pending = None
            if error.details.get("result") in MEMORY:
                raise
            raise link.lose(str(error)) from error
        self.submits += 1
        self._wait()
        link.handles.pending = None

    def _wait(self) -> None:
        link = self.link
        for _ in range(max(1, self.seconds * 1_000_000_000 // WAIT_NS)):
            try:
                if link.call("vkWaitForFences", link.device, 1, self._fences, 1, WAIT_NS) != Result.TIMEOUT:
                    return
            except BackendFault as error:
                raise link.lose(str(error)) from error
        raise link.lose(f"a submit has not finished in {self.seconds} s (timed out)")
