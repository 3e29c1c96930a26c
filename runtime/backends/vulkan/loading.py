"""Loading a model: room is made and checked before anything is allocated, and a load that fails leaves nothing."""

from __future__ import annotations

from collections.abc import Generator

import attrs

from ....actors.errors import BudgetExceeded
from ....actors.memory.plan import AllocationPlan
from ...models.locate import ModelSource
from ..contract import PlanRequest, Segment
from .device import Device
from .opened import OpenDevice
from .resident import Resident
from .shapes import Layouts
from .workspaces import RegionPool


@attrs.frozen(eq=False)
class Loader:
    """Loads models on one device; ``residents`` are those it has, by key."""

    opened: OpenDevice
    regions: RegionPool
    residents: dict[str, Resident]

    def load(
        self,
        model: str,
        source: ModelSource,
        layouts: Layouts,
        plan: AllocationPlan,
        request: PlanRequest,
        weights: bool,
    ) -> Generator[Segment, None, None]:
        """Load the weights, unless those that are there are kept, and allocate the KV slots.

        What a lost device held can't be kept: its weights are loaded anew.

        Raises:
            ArtifactInvalid: the file is another one now, or holds what can't be resident.
            BudgetExceeded: the device has not enough memory; nothing was allocated.
            BackendFault: weights are to be kept, and there are none.
        """
        weights = weights or self._lost(model)
        resident = self._place(model, layouts, weights)
        try:
            self._admit(model, resident.device, plan, weights)
            if weights:
                yield from resident.load(source)
            yield from resident.allocate(request)
        except BaseException:
            self.regions.forget(resident.layouts)
            resident.forget_slots()
            if weights:
                resident.free()
            raise
        yield Segment(last=True)

    def _place(self, model: str, layouts: Layouts, weights: bool) -> Resident:
        """What is to hold the model, emptied of all that it is not to keep."""
        device = self._device()
        known = self.residents.get(model)
        if known is not None:
            self.regions.forget(known.layouts)
            known.forget_slots()
            if weights:
                known.free()
        if weights or known is None:
            known = self.residents[model] = Resident(facts=layouts.facts, layouts=layouts, device=device)
        if not weights:
            known.loaded()
        return known

    def _lost(self, model: str) -> bool:
        known = self.residents.get(model)
        return known is not None and known.device.fault is not None

    def _device(self) -> Device:
        """The device, opened anew if it was lost; what was on it is gone then."""
        device = self.opened.device
        if device.fault is None:
            return device
        self.regions.forget()
        for resident in self.residents.values():
            resident.free()
        return self.opened.renew()

    def _admit(self, model: str, device: Device, plan: AllocationPlan, weights: bool) -> None:
        """Refuse a load that the device has no room for. Memory kept for later steps is given up for it."""
        oversized = plan.oversized()
        if oversized is not None:
            raise BudgetExceeded(
                f"{oversized.name} of model {model!r}",
                oversized.bytes,
                plan.max_buffer or 0,
                "the device cannot hold it in one piece; lower the context or the chunk",
            )
        kept = f"weights/{model}"
        plan = attrs.evolve(plan, buffers=tuple(one for one in plan.buffers if weights or one.account != kept))
        needed, count = plan.total, plan.allocations
        if needed > device.budget() or device.allocations + count > device.limits.max_allocations:
            self.regions.forget_idle()
        free = device.budget()
        if needed > free:
            raise BudgetExceeded(
                f"model {model!r}", needed, free, "close other programs that use the device, or lower the context"
            )
        left = device.limits.max_allocations - device.allocations
        if count > left:
            raise BudgetExceeded(f"model {model!r}", count, left, "load fewer models or slots", unit="allocations")
