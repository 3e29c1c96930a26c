"""Raw Vulkan functions that are counted, and fail when they are told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
from coresident.runtime.backends.vulkan.functions import Functions

OWNERS = ("Instance", "Device")
"""What is destroyed by itself: ``vkDestroyDevice(device, allocator)``."""

FOREVER = (1 << 64) - 1
MADE = {"vkAllocateMemory": "Memory", "vkAllocateCommandBuffers": "Commands", "vkCreateComputePipelines": "Pipeline"}
"""What is made by functions that do not name it."""


@attrs.define
class Fault:
    """Calls number ``nth`` and up of function ``name`` return ``result``; only that one unless it goes ``on``."""

    name: str
    result: int
    nth: int = 1
    on: bool = False
    met: int = 0

    def meets(self, name: str) -> bool:
        if name != self.name:
            return False
        self.met += 1
        return self.met == self.nth or (self.on and self.met > self.nth)


@attrs.define(eq=False)
class Watched:
    """Functions whose calls are logged in ``calls`` as (name, result); ``living`` has what lives, and on which device.

    A destroyed handle must have been made, and what is made on a device must be gone before the device is.
    """

    real: Functions
    fault: Fault | None = None
    calls: list[tuple[str, int | None]] = attrs.field(factory=list)
    living: dict[tuple[str, int], int] = attrs.field(factory=dict)
    functions: Functions = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        table = {name: self._watched(name, raw) for name, raw in self.real.table.items()}
        self.functions = Functions(self.real.ffi, table, self.real.constants)

    def fail(self, name: str, result: int, nth: int = 1, on: bool = False) -> None:
        """From here on, the ``nth`` call of ``name`` (or every one from it on) returns ``result``, doing nothing.

        A wait that fails has waited.
        """
        self.fault = Fault(name, result, nth, on)

    def replace(self, name: str, change: Callable[..., Any]) -> None:
        """After every call of ``name``, ``change`` gets its arguments, to change what they point to."""
        raw = self.functions.table[name]

        def changed(*args: Any) -> Any:
            result = raw(*args)
            change(*args)
            return result

        self.functions.table[name] = changed

    def fallible(self) -> list[tuple[str, int]]:
        """Every logged call that returned a VkResult, as its name and which call of that name it was."""
        seen: Counter[str] = Counter()
        found = []
        for name, result in self.calls:
            if result is not None:
                seen[name] += 1
                found.append((name, seen[name]))
        return found

    def count(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)

    def left(self) -> list[tuple[str, int]]:
        """What was made and not destroyed."""
        return sorted(self.living)

    def _watched(self, name: str, raw: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self.fault is not None and self.fault.meets(name):
                if name == "vkWaitForFences" and self.fault.result < 0:
                    # No device is lost here: its work must have ended before what it uses is destroyed.
                    raw(*args[:-1], FOREVER)
                self.calls.append((name, self.fault.result))
                return self.fault.result
            self._gone(name, args)
            result = raw(*args)
            self.calls.append((name, result))
            if result == 0:
                self._made(name, args)
            return result

        return call

    def _made(self, name: str, args: tuple[Any, ...]) -> None:
        kind = MADE.get(name, name.removeprefix("vkCreate") if name.startswith("vkCreate") else "")
        if kind:
            key = kind, self._at(args[-1][0])
            assert key not in self.living
            self.living[key] = 0 if kind in OWNERS else self._at(args[0])

    def _gone(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "vkFreeCommandBuffers":
            self._end("Commands", args[3][0])
        elif name == "vkFreeMemory":
            self._end("Memory", args[1])
        elif name.startswith("vkDestroy"):
            kind = name.removeprefix("vkDestroy")
            if kind == "CommandPool":
                for key in [key for key in self._on(args[0]) if key[0] == "Commands"]:
                    del self.living[key]
            self._end(kind, args[0] if kind in OWNERS else args[1])
            if kind == "Device":
                assert self._on(args[0]) == []

    def _on(self, device: Any) -> list[tuple[str, int]]:
        return [key for key, owner in self.living.items() if owner == self._at(device)]

    def _end(self, kind: str, handle: Any) -> None:
        key = kind, self._at(handle)
        assert key in self.living, f"{kind} is destroyed, but does not live"
        del self.living[key]

    def _at(self, handle: Any) -> int:
        return int(self.real.ffi.cast("uintptr_t", handle))
