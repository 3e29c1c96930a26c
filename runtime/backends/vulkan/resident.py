"""What a loaded model holds: weights, KV slots by role, a staging buffer, and retained copies by handle."""

from __future__ import annotations

from collections.abc import Generator

import attrs

from ....actors.errors import BackendFault
from ...models.locate import ModelSource
from ..blobs import Blob
from ..contract import PlanRequest, Segment
from ..held import Held
from .device import Device
from .facts import VulkanFacts
from .memory import Buffer
from .planning import roles, staging_bytes
from .retained import Mover
from .shapes import Layouts
from .slots import Role, Slot
from .uploading import clear
from .weights import Weights, load_weights
from .writing import Running


@attrs.define(eq=False)
class Resident(Held[Slot, Blob]):
    """A model's memory on one device."""

    facts: VulkanFacts
    layouts: Layouts
    device: Device
    running: Running | None = None
    staging: Buffer | None = None
    roles: dict[str, Role] = attrs.field(factory=dict)

    def load(self, source: ModelSource) -> Generator[Segment, None, None]:
        """Read the weights to the device; given up or failed, nothing of them stays.

        Raises:
            ArtifactInvalid: the file is another one now, or holds a value that its resident form can't.
            BudgetExceeded: the device has not enough memory.
        """
        checkpoint = self.facts.reopen(source)
        self.staging = self.device.allocate(staging_bytes(self.device.limits), "staging", host=True)
        weights = Weights.allocate(self.device, self.layouts)
        self.running = None
        try:
            yield from load_weights(self.device, self.staging, weights, checkpoint)
        except BaseException:
            weights.free()
            raise
        self.running = Running(self.device, self.layouts, weights)

    def allocate(self, request: PlanRequest) -> Generator[Segment, None, None]:
        """Allocate the KV slots of a plan, all zeros; a segment ends after each buffer."""
        self.chunk = request.chunk
        for role, _, count, capacity in roles(request):
            if not count:
                self.slots[role] = []
                continue
            self.roles[role] = made = Role.allocate(self.device, self.facts, role, count, capacity)
            for buffer in made.arena.buffers:
                clear(self.device, self.moved_through(), [buffer])
                yield Segment()
            self.slots[role] = made.slots

    @property
    def is_loaded(self) -> bool:
        return self.running is not None

    def loaded(self) -> Running:
        """What steps compute with. Raises BackendFault when it is not loaded."""
        if self.running is None:
            raise BackendFault(f"weights of {self.facts.description.label} are not loaded: load them first")
        return self.running

    def moved_through(self) -> Buffer:
        """The staging buffer. Raises BackendFault when nothing is loaded."""
        if self.staging is None:
            raise BackendFault(f"weights of {self.facts.description.label} are not loaded: load them first")
        return self.staging

    @property
    def mover(self) -> Mover:
        """What moves positions of the slots."""
        return Mover(self.device, self.moved_through(), self.facts.config)

    def forget_slots(self) -> None:
        """Free the slots and drop what is retained."""
        self.slots.clear()
        self.retained.clear()
        for role in self.roles.values():
            role.free()
        self.roles.clear()

    def free(self) -> None:
        """Give everything back; doing it again does nothing."""
        self.forget_slots()
        if self.running is not None:
            self.running.weights.free()
            self.running = None
        if self.staging is not None:
            self.staging.free()
            self.staging = None
