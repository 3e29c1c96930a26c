"""A Vulkan backend from a configuration: which device, how much of its memory, and from which process it is seen."""

from __future__ import annotations

from collections.abc import Mapping

from ....actors.errors import InvalidRequest
from ...config_device import DeviceConfig
from ...config_worker import PROCESS
from ...models.locate import ModelSource
from .backend import VulkanBackend
from .inventory import choose, inventory
from .library import open_functions, require
from .looking import look_at_device
from .profile import Planned, share_of


def open_vulkan(models: Mapping[str, ModelSource], device: DeviceConfig) -> VulkanBackend:
    """The backend of a configuration, with nothing loaded.

    Where a worker process will compute, this one only plans, with what another process has found, and loads no driver.

    Raises:
        InvalidRequest: the package, the loader, a driver or the device are missing, or the partition is larger than
            what the device has; says what to do.
    """
    require()
    if device.executor == PROCESS:
        profile = look_at_device(device.index, device.share, device.driver)
        check_partition(device.partition, profile)
        return VulkanBackend(models, profile=profile)
    functions = open_functions()
    info = choose(inventory(functions), device.index)
    backend = VulkanBackend(
        models, functions=functions, device=info.index, share=share_of(info, device.share), workspace=device.workspace
    )
    check_partition(device.partition, backend.planned)
    return backend


def check_partition(partition: int, device: Planned) -> None:
    """Refuse a partition that is more than the device has room for, beside what others hold of it.

    Raises:
        InvalidRequest: with both figures.
    """
    free = device.budget()
    if partition > free:
        raise InvalidRequest(
            f"device.partition is {partition} bytes: {device.info.name} has room for {free} now, of memory of "
            f"{max(device.info.heaps, default=0)}; lower the partition to that, close other programs that use the "
            "device, or raise device.share where the driver tells no budget",
            field="device.partition",
            value=partition,
            limit=free,
        )
