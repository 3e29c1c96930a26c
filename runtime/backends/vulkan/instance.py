"""A VkInstance, which an inventory holds for a moment and an open device for its life."""

from __future__ import annotations

from ....actors.errors import CoresidentError
from .functions import Functions, Handle
from .library import unreadable_drivers
from .results import Result, fault

API = (1, 3, 0)
"""The newest version whose structs are looked at; what is required is Vulkan 1.2."""

PORTABILITY = "VK_KHR_portability_enumeration"
"""With flag 1, drivers that are not fully conformant are listed too: MoltenVK is one."""


def version(number: int) -> tuple[int, int, int]:
    """A version packed by ``VK_MAKE_API_VERSION``."""
    return number >> 22 & 0x7F, number >> 12 & 0x3FF, number & 0xFFF


def create_instance(functions: Functions) -> Handle | None:
    """A new instance; ``None`` when the loader finds no driver."""
    ffi, (major, minor, patch) = functions.ffi, API
    application = functions.struct("VkApplicationInfo", apiVersion=major << 22 | minor << 12 | patch)
    names = [ffi.new("char[]", name.encode()) for name in {PORTABILITY} & instance_extensions(functions)]
    info = functions.struct(
        "VkInstanceCreateInfo",
        flags=len(names),
        pApplicationInfo=application,
        enabledExtensionCount=len(names),
        ppEnabledExtensionNames=functions.array("char*", names),
    )
    out = ffi.new("VkInstance*")
    result = int(functions.table["vkCreateInstance"](info, ffi.NULL, out))
    if result == Result.ERROR_INCOMPATIBLE_DRIVER:
        return None
    if result < 0:
        raise fault("vkCreateInstance", result)
    return out[0]


def instance_extensions(functions: Functions) -> frozenset[str]:
    """Names of what the loader and its drivers offer beyond the core.

    Raises ``InvalidRequest`` where the loader cannot tell, as with a damaged driver manifest.
    """
    try:
        return extension_names(functions, "vkEnumerateInstanceExtensionProperties")
    except CoresidentError as error:
        raise unreadable_drivers(error) from error


def extension_names(functions: Functions, name: str, *args: Handle) -> frozenset[str]:
    """Names of the extensions that function ``name`` lists."""
    ffi, count = functions.ffi, functions.ffi.new("uint32_t*")
    functions.call(name, *args, ffi.NULL, count, ffi.NULL)
    found = ffi.new("VkExtensionProperties[]", max(1, count[0]))
    functions.call(name, *args, ffi.NULL, count, found)
    return frozenset(ffi.string(found[index].extensionName).decode() for index in range(count[0]))


def destroy_instance(functions: Functions, instance: Handle) -> None:
    functions.call("vkDestroyInstance", instance, functions.ffi.NULL)


def physical_devices(functions: Functions, instance: Handle) -> tuple[Handle, ...]:
    """The handles of all devices, in the loader's order; none when their drivers fail to start."""
    ffi, count = functions.ffi, functions.ffi.new("uint32_t*")
    name = "vkEnumeratePhysicalDevices"
    result = int(functions.table[name](instance, count, ffi.NULL))
    if result == Result.ERROR_INITIALIZATION_FAILED:
        return ()
    if result < 0:
        raise fault(name, result)
    found = ffi.new("VkPhysicalDevice[]", max(1, count[0]))
    functions.call(name, instance, count, found)
    return tuple(found[0 : count[0]])
