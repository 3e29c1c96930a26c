"""What Vulkan has on this machine, for people: its devices, the one that is taken, and else what to do."""

from __future__ import annotations

from typing import Any

import attrs

from ....actors.errors import CoresidentError
from .describing import DeviceInfo
from .inventory import choose
from .looking import look_at_devices


@attrs.frozen
class Survey:
    """Every device in the loader's order, the one that is taken by default, or why there is none."""

    devices: tuple[DeviceInfo, ...] = ()
    chosen: DeviceInfo | None = None
    fault: str = ""

    @property
    def note(self) -> str:
        """One sentence."""
        return self.fault if self.chosen is None else f"computes on {self.chosen.name}"

    def as_json(self) -> list[dict[str, Any]]:
        """Devices with sizes in bytes; ``largest_buffer`` is that of one binding."""
        return [_as_json(info, info is self.chosen) for info in self.devices]


def survey() -> Survey:
    """Look at the devices of this machine; what is missing is said in the survey, and nothing is raised for it."""
    devices: tuple[DeviceInfo, ...] = ()
    try:
        devices = look_at_devices()
        return Survey(devices, choose(devices))
    except CoresidentError as error:
        return Survey(devices, None, _unasked(error.message))


def _unasked(message: str) -> str:
    """A message without what it says of a configuration: there is none here."""
    return message.removeprefix("device.backend is 'vulkan': ").removeprefix("device.backend is 'vulkan', which ")


def _as_json(info: DeviceInfo, chosen: bool) -> dict[str, Any]:
    return {
        "index": info.index,
        "name": info.name,
        "kind": info.kind,
        "driver": info.driver,
        "api_version": ".".join(map(str, info.api_version)),
        "memory": memory_of(info),
        "largest_buffer": info.limits.block,
        "unsuitable": info.unsuitable,
        "chosen": chosen,
    }


def memory_of(info: DeviceInfo) -> int:
    """Bytes of its largest heap; 0 when it names none."""
    return max(info.heaps, default=0)
