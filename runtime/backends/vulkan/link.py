"""An open VkDevice: calling its functions, what was made on it, and the fault that ended it."""

from __future__ import annotations

import weakref
from threading import Lock
from typing import Any

import attrs

from ....actors.errors import DeviceLost
from ...logged import Logged, complain
from .functions import Functions, Handle
from .instance import destroy_instance
from .inventory import DeviceInfo
from .limits import Limits
from .results import Result

WAIT_NS = 50_000_000
"""One wait for a fence: a thread that waits is back in Python this often."""

LAST_WAITS = 100
"""Waits for a submit that was given up, before its memory is left to the end of the process."""

_OVER = frozenset({Result.SUCCESS, Result.ERROR_DEVICE_LOST})


@attrs.define(eq=False)
class Handles:
    """What was made and not yet destroyed, the device and its instance; ``pending`` is the fence of a running submit.

    While a submit runs that was given up, nothing is destroyed: the device still uses it. Closing waits for its end.
    This object holds nothing that holds it, so it can be closed when nobody holds the device any more. ``lock`` is for
    those that use the device while its own thread may close it.
    """

    functions: Functions
    instance: Handle
    device: Handle
    pending: Handle | None = None
    closed: bool = False
    lock: Lock = attrs.field(factory=Lock, init=False)
    _made: dict[tuple[str, int], Handle] = attrs.field(factory=dict, init=False)

    def add(self, destroy: str, handle: Handle) -> None:
        """Take over a handle that function ``destroy`` destroys."""
        self._made[self._key(destroy, handle)] = handle

    def destroy(self, destroy: str, handle: Handle, unused: bool = False) -> None:
        """Destroy a handle unless that was done before; later, with the device, when a submit may use it.

        No submit uses what is ``unused``.
        """
        free = self.usable or (unused and not self.closed)
        if free and self._made.pop(self._key(destroy, handle), None) is not None:
            self.functions.call(destroy, self.device, handle, self.functions.ffi.NULL)

    @property
    def usable(self) -> bool:
        """Whether things can be destroyed one by one now."""
        return not self.closed and self.pending is None

    def close(self) -> None:
        """Destroy everything, the newest first; nothing when the device does not end its work: that would crash."""
        with self.lock:
            closed, self.closed = self.closed, True
        if closed:
            return
        if not self._finished():
            complain(Logged.DEVICE_ABANDONED, why="it still works on a submit that was given up", kept=len(self._made))
            return
        for (destroy, _), handle in reversed(self._made.items()):
            self.functions.call(destroy, self.device, handle, self.functions.ffi.NULL)
        self._made.clear()
        self.functions.call("vkDestroyDevice", self.device, self.functions.ffi.NULL)
        destroy_instance(self.functions, self.instance)

    def _finished(self) -> bool:
        """Whether no submit runs; one that a lost device had is over."""
        if self.pending is None:
            return True
        fence, wait = self.functions.ffi.new("VkFence[]", [self.pending]), self.functions.table["vkWaitForFences"]
        return any(wait(self.device, 1, fence, 1, WAIT_NS) in _OVER for _ in range(LAST_WAITS))

    def _key(self, destroy: str, handle: Handle) -> tuple[str, int]:
        return destroy, int(self.functions.ffi.cast("uintptr_t", handle))


@attrs.define(eq=False)
class Link:
    """The way to a device. ``fault`` is why it was lost; from then on every call raises ``DeviceLost`` with it."""

    handles: Handles
    info: DeviceInfo
    fault: str | None = None

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, self.handles.close)

    @property
    def functions(self) -> Functions:
        return self.handles.functions

    @property
    def device(self) -> Handle:
        return self.handles.device

    @property
    def limits(self) -> Limits:
        return self.info.limits

    def check(self) -> None:
        """Raise ``DeviceLost`` when the device is lost or closed."""
        if self.fault is not None:
            raise DeviceLost(f"Vulkan device {self.info.name} is lost until it is opened anew: {self.fault}")
        if self.handles.closed:
            raise DeviceLost(f"Vulkan device {self.info.name} is closed: open it anew")

    def call(self, name: str, *args: Any, what: str = "") -> int:
        """Run a raw function that is given the device itself in ``args`` where it wants it."""
        self.check()
        try:
            return self.functions.call(name, *args, what=what)
        except DeviceLost as error:
            raise self.lose(str(error)) from error

    def lose(self, why: str) -> DeviceLost:
        """Declare the device lost; the error to raise."""
        self.fault = why
        return DeviceLost(why)

    def create(self, name: str, info: Handle, what: str = "") -> Handle:
        """Call ``vkCreate...``; the new handle is destroyed with the device unless :meth:`destroy` was called."""
        kind = name.removeprefix("vkCreate")
        out = self.functions.ffi.new(f"Vk{kind}*")
        self.call(name, self.device, info, self.functions.ffi.NULL, out, what=what)
        self.handles.add(f"vkDestroy{kind}", out[0])
        return out[0]

    def destroy(self, name: str, handle: Handle, unused: bool = False) -> None:
        """Call ``vkDestroy...``, or ``vkFreeMemory``, once; on a lost device too, never on a closed one."""
        self.handles.destroy(name, handle, unused)
