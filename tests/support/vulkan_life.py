"""A device's whole life with one small kernel: ``y = w * x + a`` for 256 numbers."""

from __future__ import annotations

import hashlib
import struct
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from coresident.runtime.backends.vulkan.device import Device
from coresident.runtime.backends.vulkan.dispatches import Dispatch
from coresident.runtime.backends.vulkan.functions import Functions
from coresident.runtime.backends.vulkan.inventory import DeviceInfo, choose, inventory
from coresident.runtime.backends.vulkan.kernels import Binding, Kernel, Kernels
from coresident.runtime.backends.vulkan.library import open_functions

from support.vulkan_here import needs_vulkan

SPIRV = Path(__file__).with_name("vulkan_kernel.spv")
NAME = "scale"
COUNT = 256
BYTES = 4 * COUNT
W = np.arange(COUNT, dtype=np.float32)
X = np.linspace(-1, 1, 2 * COUNT, dtype=np.float32)
A = 2.5


@cache
def kernels() -> Kernels:
    code = SPIRV.read_bytes()
    sets = ((Binding("texel", "VK_FORMAT_R32_SFLOAT"),), (Binding("storage"), Binding("storage")))
    return Kernels({NAME: Kernel(NAME, code, hashlib.sha256(code).hexdigest(), sets, 8)})


@cache
def functions() -> Functions:
    needs_vulkan()
    return open_functions()


@cache
def quick_functions() -> Functions:
    """The same with one VkInstance for all, which takes most of an opening; only one device at a time may be open."""
    real, kept = functions(), []

    def create(info: Any, allocator: Any, out: Any) -> int:
        if not kept:
            made = real.ffi.new("VkInstance*")
            real.call("vkCreateInstance", info, allocator, made)
            kept.append(made[0])
        out[0] = kept[0]
        return 0

    table = {**real.table, "vkCreateInstance": create, "vkDestroyInstance": lambda instance, allocator: None}
    return Functions(real.ffi, table, real.constants)


@cache
def device_info() -> DeviceInfo:
    return choose(inventory(functions()))


def opened(use: Functions | None = None, info: DeviceInfo | None = None, **options: Any) -> Device:
    """The best device here, with the small kernel."""
    return Device.open(use or functions(), info or device_info(), **{"kernels": kernels(), **options})


def scale(count: int = COUNT, a: float = A) -> Dispatch:
    return Dispatch(NAME, struct.pack("<If", count, a), (-(-count // 64), 1, 1))


def expected(half: int = 0) -> Any:
    """What the kernel computes, in float32 as it does, from one half of ``X``."""
    return W * X[half * COUNT :][:COUNT] + np.float32(A)


@attrs.define(eq=False)
class Life:
    """Buffers, sets and a recording on a device; ``answer`` runs it."""

    device: Device
    buffers: dict[str, Any] = attrs.field(factory=dict)
    commands: Any = None

    def prepare(self, half: int = 0) -> None:
        """Allocate, upload, bind one half of ``X``, and record."""
        for name, size, host in (("w", BYTES, True), ("x", 2 * BYTES, True), ("y", BYTES, False), ("out", BYTES, True)):
            self.buffers[name] = self.device.allocate(size, name, host)
        self.buffers["w"].view.view(np.float32)[:] = W
        self.buffers["x"].view.view(np.float32)[:] = X
        pool = self.device.sets()
        bounds = [self.buffers["x"].bound(half * BYTES, BYTES), self.buffers["y"].bound()]
        sets = [pool.make(NAME, 0, [self.buffers["w"].bound()]), pool.make(NAME, 1, bounds)]
        with self.device.record() as recording:
            recording.dispatch(scale(), sets)
            recording.barrier()
            recording.copy(self.buffers["y"], self.buffers["out"], [(0, 0, BYTES)])
            self.commands = recording.finish()

    def answer(self) -> Any:
        self.buffers["out"].view[:] = 0
        self.device.run([self.commands])
        return self.buffers["out"].view.view(np.float32).copy()
