"""KV slots on a device: an arena for each role, and the descriptor sets that were made of each layer."""

from __future__ import annotations

import attrs

from ..positions import check_filled, check_room
from .arena import Arena
from .device import Device
from .facts import VulkanFacts
from .functions import Handle
from .memory import Bound
from .planning import kv_name, kv_packing
from .set_cache import SetCache

PARTS = ("keys", "values")


@attrs.define(eq=False)
class Slot:
    """``filled`` counts the positions from 0 whose keys and values are whole in every layer.

    Keys lie as ``(kv_heads, head_dim / 4, capacity, 4)``, values as ``(kv_heads, capacity, head_dim)``, float32.
    """

    role: str
    number: int
    capacity: int
    arena: Arena
    sets: SetCache
    filled: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What recordings over it are known by."""
        return self.role, self.number

    def check(self, start: int, tokens: int) -> None:
        """Refuse positions beyond the capacity, or after a gap."""
        check_room(self.capacity, self.filled, start, tokens)

    def check_filled(self, tokens: int) -> None:
        """Refuse to build on positions that were not evaluated."""
        check_filled(self.filled, tokens)

    def at(self, layer: int, part: str) -> Bound:
        """Where a layer's ``keys`` or ``values`` are."""
        return self.arena.at(kv_name(self.number, layer, part))

    def of_layer(self, kernel: str, layer: int) -> Handle:
        """Set 2 of a kernel on one layer."""
        return self.sets.get(kernel, (self.number, layer), lambda: [self.at(layer, part) for part in PARTS])


@attrs.frozen(eq=False)
class Role:
    """The slots of one role and their memory."""

    slots: list[Slot]
    arena: Arena
    sets: SetCache

    @classmethod
    def allocate(cls, device: Device, facts: VulkanFacts, role: str, slots: int, capacity: int) -> Role:
        """Raises ``BudgetExceeded`` when the device has not enough."""
        packing = kv_packing(facts, slots, capacity, device.limits)
        arena = Arena.allocate(device, packing, f"{role} keys and values of {facts.description.label}")
        sets = SetCache(device.sets(), 2)
        return cls([Slot(role, number, capacity, arena, sets) for number in range(slots)], arena, sets)

    def free(self) -> None:
        """Give everything back; doing it again does nothing."""
        self.sets.free()
        self.arena.free()
