"""Making the VkDevice that a device's description names."""

from __future__ import annotations

from ....actors.errors import InvalidRequest
from .describing import BUDGET, FEEDBACK, SUBSET, DeviceInfo, describe
from .functions import Functions, Handle
from .instance import create_instance, destroy_instance, physical_devices
from .library import no_driver
from .link import Handles, Link


def open_link(functions: Functions, info: DeviceInfo) -> tuple[Link, Handle]:
    """A new device with its own instance, and its VkPhysicalDevice.

    Raises ``InvalidRequest`` when the device is unsuitable or no longer at its index; nothing is left open then.
    """
    if info.unsuitable is not None:
        raise InvalidRequest(f"Vulkan device {info.index} ({info.name}) cannot be used: {info.unsuitable}")
    instance = create_instance(functions)
    if instance is None:
        raise no_driver()
    try:
        physical = _find(functions, instance, info)
        device = _create(functions, physical, info)
    except BaseException:
        destroy_instance(functions, instance)
        raise
    return Link(Handles(functions, instance, device), info), physical


def _find(functions: Functions, instance: Handle, info: DeviceInfo) -> Handle:
    found = physical_devices(functions, instance)
    if info.index < len(found):
        now = describe(functions, found[info.index], info.index)
        if (now.name, now.vendor, now.device) == (info.name, info.vendor, info.device):
            return found[info.index]
    raise InvalidRequest(
        f"Vulkan device {info.index} is no longer {info.name}: the devices of this machine have changed; look again "
        "with 'coresident devices'",
        backend="vulkan",
    )


def _create(functions: Functions, physical: Handle, info: DeviceInfo) -> Handle:
    ffi = functions.ffi
    queue = functions.struct(
        "VkDeviceQueueCreateInfo",
        queueFamilyIndex=info.queue_family,
        queueCount=1,
        pQueuePriorities=ffi.new("float[]", [1.0]),
    )
    names = [ffi.new("char[]", name.encode()) for name in (BUDGET, FEEDBACK, SUBSET) if name in info.extensions]
    create = functions.struct(
        "VkDeviceCreateInfo",
        queueCreateInfoCount=1,
        pQueueCreateInfos=queue,
        enabledExtensionCount=len(names),
        ppEnabledExtensionNames=functions.array("char*", names),
    )
    out = ffi.new("VkDevice*")
    functions.call("vkCreateDevice", physical, create, ffi.NULL, out, what=info.name)
    return out[0]
