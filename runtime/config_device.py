"""The part of a configuration about the device: which one, with how much of its memory, and what runs its steps."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators

from .backends.contract import MARGIN_PERCENT
from .backends.device_file import load_device
from .config_checks import at_least, percent, positive
from .config_worker import PROCESS, THREAD, DriverConfig, is_executor
from .sizes import GIB, MIB, Bytes

MODELLED = "modelled"
ESTIMATED = "mlx"
CHOSEN = "vulkan"

OWN_KEYS = {"margin": ESTIMATED, "index": CHOSEN, "share": CHOSEN}
"""Keys that one backend alone has; under another they keep their defaults."""


@attrs.frozen
class DeviceConfig:
    """The device: its backend, partition and workspace budget in bytes.

    ``yield_ms`` is how long a segment should last at most: grants with a longer one are counted in the statistics.
    ``threads`` of the reference backend's matrix products; 0 lets the backend choose. ``model`` of the modelled backend
    is a device model that ships with the package, or a TOML file of one: partition and workspace are then its own,
    unless they are set here. ``id`` names the physical device and ``physical`` its bytes, where what is found is not
    right: all partitions of one id must fit into it together.

    ``executor`` is ``thread``, or ``process`` for a worker that may die without taking the program along, and that
    alone sees ``driver``. A grant that has not ended after ``step_seconds`` hangs; after ``load_seconds``, if it loads,
    warms up, or reads or writes a file.

    ``margin``, in percent, goes on top of every workspace charge of ``mlx``, whose charges are estimates. ``index``
    chooses the device of ``vulkan``, as ``coresident devices`` counts them; without one, the best is taken. ``share``
    is the percent of its memory that may be used where its driver tells no budget: 80, and 100 of a CPU device.
    """

    backend: str = "reference"
    model: str = attrs.field(default="", kw_only=True)
    partition: Bytes = attrs.field(validator=positive)
    workspace: Bytes = attrs.field(validator=positive)
    yield_ms: int = attrs.field(default=25, validator=positive)
    threads: int = attrs.field(default=0, validator=at_least(0))
    id: str = attrs.field(default="", kw_only=True)
    physical: Bytes = attrs.field(default=Bytes(0), validator=at_least(0), kw_only=True)
    executor: str = attrs.field(default=THREAD, validator=is_executor, kw_only=True)
    step_seconds: int = attrs.field(default=120, validator=positive, kw_only=True)
    load_seconds: int = attrs.field(default=1800, validator=positive, kw_only=True)
    driver: DriverConfig = attrs.field(default=DriverConfig(), kw_only=True)
    margin: int = attrs.field(default=MARGIN_PERCENT, validator=at_least(0), kw_only=True)
    index: int | None = attrs.field(default=None, validator=validators.optional(at_least(0)), kw_only=True)
    share: int | None = attrs.field(default=None, validator=validators.optional(percent), kw_only=True)

    @partition.default
    def _partition(self) -> Bytes:
        return Bytes(load_device(self.model).partition if self.model else 2 * GIB)

    @workspace.default
    def _workspace(self) -> Bytes:
        return Bytes(load_device(self.model).workspace if self.model else 192 * MIB)

    def __attrs_post_init__(self) -> None:
        if self.model and self.backend != MODELLED:
            raise ValueError(
                f"model is {self.model!r}, a device model, but backend is {self.backend!r}: only {MODELLED!r} has one"
            )
        for key, default in _own_defaults().items():
            value, owner = getattr(self, key), OWN_KEYS[key]
            if value != default and self.backend != owner:
                raise ValueError(f"{key} is {value}, but backend is {self.backend!r}: only {owner!r} has one")
        if self.driver.manifest and self.executor != PROCESS:
            raise ValueError(
                f"driver is set, but executor is {self.executor!r}: only the environment of a {PROCESS!r} gets one"
            )

    def inside(self) -> DeviceConfig:
        """The same device for the process that computes on it, whose environment has the driver already."""
        return attrs.evolve(self, executor=THREAD, driver=DriverConfig())

    def under(self, backend: str) -> DeviceConfig:
        """The same device under a backend, without what another one alone has."""
        return self if backend == self.backend else attrs.evolve(self, backend=backend, **_own_defaults())


def _own_defaults() -> dict[str, Any]:
    known = attrs.fields_dict(DeviceConfig)
    return {key: known[key].default for key in OWN_KEYS}
