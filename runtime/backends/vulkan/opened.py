"""The device of a backend: opened when the backend is made, and anew after it was lost."""

from __future__ import annotations

from pathlib import Path

import attrs

from ....actors.errors import BackendFault, DeviceLost
from .device import SHARE, Device
from .functions import Functions
from .inventory import DeviceInfo, choose, inventory
from .kernels import Kernels, load_kernels
from .library import open_functions
from .limits import Limits
from .pipeline_cache import default_folder
from .profile import Planned, Profile

GRAIN = 64 << 10
"""Drivers round allocations up to pages, the largest of which have this size."""


@attrs.frozen
class Wanted:
    """Which device to open and how: by index, the best one by default; ``limits`` stand for its own."""

    index: int | None = None
    limits: Limits | None = None
    share: int = SHARE
    cache: Path | None = None


@attrs.define(eq=False)
class OpenDevice:
    """Holds the one device that is open, or the profile of one that another process has."""

    wanted: Wanted
    _functions: Functions | None
    _profile: Profile | None
    _device: Device | None = attrs.field(default=None, init=False)
    _kernels: Kernels | None = attrs.field(default=None, init=False)
    _requirements: dict[int, int] = attrs.field(factory=dict, init=False)

    @property
    def planned(self) -> Planned:
        """What plans are made with."""
        return self._profile if self._profile is not None else self.device

    def requirement(self, size: int) -> int:
        """Bytes that an allocation of ``size`` takes, on any thread; where a lost device can't tell, at most those."""
        if size not in self._requirements:
            try:
                self._requirements[size] = self.planned.requirement(size)
            except DeviceLost:
                return (size // GRAIN + 2) * GRAIN
        return self._requirements[size]

    @property
    def device(self) -> Device:
        """The device, opened on first use. Raises ``BackendFault`` where it is another process's."""
        if self._profile is not None:
            raise BackendFault("this process only plans for a worker's device: it cannot compute on it")
        if self._device is None:
            self._device = self._open()
        return self._device

    def renew(self) -> Device:
        """Close a lost device and open it anew.

        Raises:
            InvalidRequest, BackendFault, DeviceLost: it can't be opened; a later try may.
        """
        self.device.close()
        self._device = self._open()
        return self._device

    def _open(self) -> Device:
        if self._functions is None:
            self._functions = open_functions()
        if self._kernels is None:
            self._kernels = load_kernels()
        info = self._info(self._functions)
        folder = self.wanted.cache or default_folder()
        return Device.open(self._functions, info, kernels=self._kernels, cache=folder, share=self.wanted.share)

    def _info(self, functions: Functions) -> DeviceInfo:
        info = choose(inventory(functions), self.wanted.index)
        return info if self.wanted.limits is None else attrs.evolve(info, limits=self.wanted.limits)
