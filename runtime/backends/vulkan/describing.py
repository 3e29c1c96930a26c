"""What a physical device says of itself: the facts that are kept, and how they are read."""

from __future__ import annotations

import attrs

from .functions import Functions, Handle
from .instance import extension_names, version
from .limits import ALIGNMENT, Limits

KINDS = ("other", "integrated", "discrete", "virtual", "cpu")
"""VkPhysicalDeviceType by number."""

BUDGET = "VK_EXT_memory_budget"
FEEDBACK = "VK_EXT_pipeline_creation_feedback"
MAINTENANCE4 = "VK_KHR_maintenance4"
SUBSET = "VK_KHR_portability_subset"
"""Must be enabled where it is listed."""

GRAPHICS, COMPUTE = 1, 2
"""VK_QUEUE_GRAPHICS_BIT and VK_QUEUE_COMPUTE_BIT."""

STORAGE_BINDINGS = 6
"""Storage buffers of the kernel that binds the most: Vulkan promises only 4."""

FEW_TEXELS = 1 << 22
"""A device that can address no more texels than this is read through storage buffers."""


@attrs.frozen
class MemoryType:
    """VkMemoryType: property flags, and the number of its heap."""

    flags: int
    heap: int


@attrs.frozen
class DeviceInfo:
    """One physical device; ``unsuitable`` says why it cannot be used, ``heaps`` are bytes.

    ``uuid`` is hexadecimal, the same in every process and under every number; empty below Vulkan 1.2.

    ``queue_family`` is the first family that computes and does not draw, so that a desktop goes on beside it, or else
    the first that computes. Versions are (major, minor, patch), the driver's is its own number.
    """

    index: int
    name: str
    kind: str
    vendor: int
    device: int
    driver: str
    driver_version: int
    api_version: tuple[int, int, int]
    cache_uuid: bytes
    limits: Limits
    memory_types: tuple[MemoryType, ...]
    heaps: tuple[int, ...]
    extensions: frozenset[str]
    queue_family: int | None
    unsuitable: str | None = None
    uuid: str = ""


def describe(functions: Functions, physical: Handle, index: int) -> DeviceInfo:
    """What a physical device says of itself."""
    ffi = functions.ffi
    plain = ffi.new("VkPhysicalDeviceProperties*")
    functions.call("vkGetPhysicalDeviceProperties", physical, plain)
    api, extensions = (
        version(plain.apiVersion),
        extension_names(functions, "vkEnumerateDeviceExtensionProperties", physical),
    )
    driver, max_allocation, max_buffer, uuid = _more(functions, physical, api, extensions)
    types, heaps = _memory(functions, physical)
    kind = KINDS[plain.deviceType] if plain.deviceType < len(KINDS) else KINDS[0]
    family, limits = _compute_family(functions, physical), _limits(plain.limits, kind, max_allocation, max_buffer)
    return DeviceInfo(
        index=index,
        name=ffi.string(plain.deviceName).decode(errors="replace"),
        kind=kind,
        vendor=plain.vendorID,
        device=plain.deviceID,
        driver=driver,
        driver_version=plain.driverVersion,
        api_version=api,
        cache_uuid=bytes(plain.pipelineCacheUUID),
        limits=limits,
        memory_types=types,
        heaps=heaps,
        extensions=extensions,
        queue_family=family,
        unsuitable=_unsuitable(api, family, limits),
        uuid=uuid,
    )


def _unsuitable(api: tuple[int, int, int], family: int | None, limits: Limits) -> str | None:
    if api < (1, 2, 0):
        return f"its driver offers Vulkan {api[0]}.{api[1]}, and 1.2 is needed"
    if family is None:
        return "it has no queue that computes"
    if limits.max_storage_bindings < STORAGE_BINDINGS:
        return f"its kernels can bind {limits.max_storage_bindings} storage buffers, and {STORAGE_BINDINGS} are needed"
    return None


def _more(
    functions: Functions, physical: Handle, api: tuple[int, int, int], extensions: frozenset[str]
) -> tuple[str, int, int | None, str]:
    """The driver's name and version, maxMemoryAllocationSize, maxBufferSize where it is told, and the UUID."""
    if api < (1, 2, 0):
        return "", 1 << 30, None, ""
    identity = functions.struct("VkPhysicalDeviceIDProperties")
    maintenance3 = functions.struct("VkPhysicalDeviceMaintenance3Properties", pNext=identity)
    driver = functions.struct("VkPhysicalDeviceDriverProperties", pNext=maintenance3)
    chain, tells = driver, api >= (1, 3, 0) or MAINTENANCE4 in extensions
    if tells:
        chain = maintenance4 = functions.struct("VkPhysicalDeviceMaintenance4Properties", pNext=driver)
    both = functions.struct("VkPhysicalDeviceProperties2", pNext=chain)
    functions.call("vkGetPhysicalDeviceProperties2", physical, both)
    name, about = (
        functions.ffi.string(text).decode(errors="replace") for text in (driver.driverName, driver.driverInfo)
    )
    return (
        f"{name} {about}".strip(),
        maintenance3.maxMemoryAllocationSize,
        maintenance4.maxBufferSize if tells else None,
        bytes(identity.deviceUUID).hex(),
    )


def _limits(raw: Handle, kind: str, max_allocation: int, max_buffer_size: int | None) -> Limits:
    """Drivers of CPUs read best through texel buffers, if these may be large enough for it."""
    return Limits(
        max_storage_range=raw.maxStorageBufferRange,
        max_texel_elements=raw.maxTexelBufferElements,
        max_buffer_size=max_buffer_size,
        max_allocation=max_allocation,
        max_allocations=raw.maxMemoryAllocationCount,
        alignment=max(ALIGNMENT, raw.minStorageBufferOffsetAlignment, raw.minTexelBufferOffsetAlignment),
        max_groups=min(raw.maxComputeWorkGroupCount),
        max_storage_bindings=raw.maxPerStageDescriptorStorageBuffers,
        texels=kind == "cpu" and raw.maxTexelBufferElements >= FEW_TEXELS,
    )


def _memory(functions: Functions, physical: Handle) -> tuple[tuple[MemoryType, ...], tuple[int, ...]]:
    raw = functions.ffi.new("VkPhysicalDeviceMemoryProperties*")
    functions.call("vkGetPhysicalDeviceMemoryProperties", physical, raw)
    types = (raw.memoryTypes[index] for index in range(raw.memoryTypeCount))
    heaps = tuple(raw.memoryHeaps[index].size for index in range(raw.memoryHeapCount))
    return tuple(MemoryType(kind.propertyFlags, kind.heapIndex) for kind in types), heaps


def _compute_family(functions: Functions, physical: Handle) -> int | None:
    ffi, count, name = functions.ffi, functions.ffi.new("uint32_t*"), "vkGetPhysicalDeviceQueueFamilyProperties"
    functions.call(name, physical, count, ffi.NULL)
    families = ffi.new("VkQueueFamilyProperties[]", max(1, count[0]))
    functions.call(name, physical, count, families)
    computing = [index for index in range(count[0]) if families[index].queueFlags & COMPUTE]
    return min(computing, key=lambda index: families[index].queueFlags & GRAPHICS, default=None)
