"""VkResult to this library's errors.

Source: the enumeration ``VkResult`` of the Vulkan specification, extensions included. Bindings know only those of
their own version.
"""

from __future__ import annotations

from enum import IntEnum

from ....actors.errors import BackendFault, CoresidentError, DeviceLost


class Result(IntEnum):
    """Every VkResult, without the ``VK_`` of its name."""

    SUCCESS = 0
    NOT_READY = 1
    TIMEOUT = 2
    EVENT_SET = 3
    EVENT_RESET = 4
    INCOMPLETE = 5
    SUBOPTIMAL_KHR = 1000001003
    THREAD_IDLE_KHR = 1000268000
    THREAD_DONE_KHR = 1000268001
    OPERATION_DEFERRED_KHR = 1000268002
    OPERATION_NOT_DEFERRED_KHR = 1000268003
    PIPELINE_COMPILE_REQUIRED = 1000297000
    INCOMPATIBLE_SHADER_BINARY_EXT = 1000482000
    PIPELINE_BINARY_MISSING_KHR = 1000483000
    ERROR_OUT_OF_HOST_MEMORY = -1
    ERROR_OUT_OF_DEVICE_MEMORY = -2
    ERROR_INITIALIZATION_FAILED = -3
    ERROR_DEVICE_LOST = -4
    ERROR_MEMORY_MAP_FAILED = -5
    ERROR_LAYER_NOT_PRESENT = -6
    ERROR_EXTENSION_NOT_PRESENT = -7
    ERROR_FEATURE_NOT_PRESENT = -8
    ERROR_INCOMPATIBLE_DRIVER = -9
    ERROR_TOO_MANY_OBJECTS = -10
    ERROR_FORMAT_NOT_SUPPORTED = -11
    ERROR_FRAGMENTED_POOL = -12
    ERROR_UNKNOWN = -13
    ERROR_SURFACE_LOST_KHR = -1000000000
    ERROR_NATIVE_WINDOW_IN_USE_KHR = -1000000001
    ERROR_OUT_OF_DATE_KHR = -1000001004
    ERROR_INCOMPATIBLE_DISPLAY_KHR = -1000003001
    ERROR_VALIDATION_FAILED_EXT = -1000011001
    ERROR_INVALID_SHADER_NV = -1000012000
    ERROR_IMAGE_USAGE_NOT_SUPPORTED_KHR = -1000023000
    ERROR_VIDEO_PICTURE_LAYOUT_NOT_SUPPORTED_KHR = -1000023001
    ERROR_VIDEO_PROFILE_OPERATION_NOT_SUPPORTED_KHR = -1000023002
    ERROR_VIDEO_PROFILE_FORMAT_NOT_SUPPORTED_KHR = -1000023003
    ERROR_VIDEO_PROFILE_CODEC_NOT_SUPPORTED_KHR = -1000023004
    ERROR_VIDEO_STD_VERSION_NOT_SUPPORTED_KHR = -1000023005
    ERROR_OUT_OF_POOL_MEMORY = -1000069000
    ERROR_INVALID_EXTERNAL_HANDLE = -1000072003
    ERROR_INVALID_DRM_FORMAT_MODIFIER_PLANE_LAYOUT_EXT = -1000158000
    ERROR_FRAGMENTATION = -1000161000
    ERROR_NOT_PERMITTED_KHR = -1000174001
    ERROR_FULL_SCREEN_EXCLUSIVE_MODE_LOST_EXT = -1000255000
    ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS = -1000257000
    ERROR_INVALID_VIDEO_STD_PARAMETERS_KHR = -1000299000
    ERROR_COMPRESSION_EXHAUSTED_EXT = -1000338000
    ERROR_NOT_ENOUGH_SPACE_KHR = -1000483000


MEMORY = frozenset({Result.ERROR_OUT_OF_HOST_MEMORY, Result.ERROR_OUT_OF_DEVICE_MEMORY})
"""What is not there when a call could not be served, while the device goes on."""

_ADVICE = {
    Result.ERROR_OUT_OF_HOST_MEMORY: "the driver found no host memory; close other programs or load less",
    Result.ERROR_OUT_OF_DEVICE_MEMORY: "the driver found no device memory; close other programs or lower "
    "device.partition",
    Result.ERROR_DEVICE_LOST: "the driver gave the device up; repair opens it anew",
}


def name(result: int) -> str:
    """The specification's name of a VkResult, or its number where it has none yet."""
    try:
        return f"VK_{Result(result).name}"
    except ValueError:
        return f"VkResult {result}"


def fault(function: str, result: int, what: str = "") -> CoresidentError:
    """The error for a negative ``result`` of ``function``: ``DeviceLost`` or ``BackendFault``, which names both."""
    doing = f"{function} for {what}" if what else function
    advice = _ADVICE.get(Result(result), "") if result in Result.__members__.values() else ""
    message = f"{doing} returned {name(result)}: {advice or 'the driver refused; look at its own messages'}"
    kind = DeviceLost if result == Result.ERROR_DEVICE_LOST else BackendFault
    return kind(message, function=function, result=result)
