"""The Vulkan backend: float32 activations and KV, weights as the file has them, every sum in one fixed order.

Each output of a kernel is one chain of products and sums whose order nothing changes, so that results are the same to
the bit under every chunking, whatever shared the device.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....actors.errors import InvalidRequest
from ....actors.memory.plan import AllocationPlan
from ....actors.work import StepShape
from ...models.locate import ModelSource
from ..blob_shelf import BlobShelf
from ..blobs import BLOCK
from ..contract import Capabilities, DecodeInput, PlanRequest, Sampled, Sampler, Segment, Workspace
from ..held import check_rows
from .device import SHARE
from .facts import VulkanFacts, read_facts
from .functions import Functions
from .limits import Limits
from .loading import Loader
from .opened import OpenDevice, Wanted
from .planning import model_plan, step_charge
from .profile import Planned, Profile
from .resident import Resident
from .shapes import Layouts
from .steps import run_decode, run_logits, run_prefill, run_score
from .warming import run_warm
from .workspaces import RegionPool, StepMemory

POOL_LIMIT = 128 << 20


class VulkanBackend(BlobShelf[VulkanFacts, Resident]):
    """Runs decoders on one Vulkan device; all calls but describing, planning and charging belong on one thread.

    ``models`` gives each model key its source, ``functions`` the raw functions (the loader's by default), ``device``
    an index in the loader's order (the best by default). ``limits`` stand for the device's own. ``share`` is the
    percentage of the heap that counts as its budget where the driver tells none. ``workspace`` bounds the bytes of
    the memory of steps, that kept for later ones included. ``cache`` is the folder of the pipeline cache's file, the
    user's by default. With a ``profile`` the backend only describes, plans and charges, for another process's device.
    """

    name = "vulkan"
    capabilities = Capabilities(
        suspend=True, grid_bound=False, features=frozenset({"teacher_forced_logits"}), retained_block=BLOCK
    )

    def __init__(
        self,
        models: Mapping[str, ModelSource],
        *,
        functions: Functions | None = None,
        device: int | None = None,
        limits: Limits | None = None,
        share: int = SHARE,
        workspace: int | None = None,
        cache: Path | None = None,
        profile: Profile | None = None,
    ) -> None:
        super().__init__(models, read_facts)
        self.opened = OpenDevice(Wanted(device, limits, share, cache), functions, profile)
        self.regions = RegionPool(POOL_LIMIT if workspace is None else workspace)
        self._layouts: dict[str, Layouts] = {}
        self._limits = self.opened.planned.limits

    @property
    def planned(self) -> Planned:
        """The device, or the profile of another process's."""
        return self.opened.planned

    def plan(self, model: str, request: PlanRequest) -> AllocationPlan:
        """Every allocation for the model, exact to the byte. Raises InvalidRequest for a head it doesn't have."""
        layouts = self._layouts_of(model)
        layouts.facts.choose_heads(request.heads)
        return model_plan(model, layouts, request)

    def charge(self, model: str, shape: StepShape) -> int:
        return step_charge(self._layouts_of(model), shape)

    def _layouts_of(self, model: str) -> Layouts:
        facts = self._known(model)
        known = self._layouts.get(model)
        if known is None or known.facts is not facts:
            self._layouts[model] = known = Layouts(facts, self._limits, self.opened.requirement)
        return known

    def open_workspace(self, charge: int) -> StepMemory:
        return StepMemory(charge, self.regions)

    def load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        """Load weights and allocate KV slots; what the model held before, retained copies too, goes first.

        A device that was lost is opened anew, and the weights are loaded in any case; what other models held on it is
        lost too.
        """
        loader = Loader(self.opened, self.regions, self._residents)
        plan = self.plan(model, request)
        return loader.load(model, self._models[model], self._layouts_of(model), plan, request, weights)

    def holds_weights(self, model: str) -> bool:
        """Whether a load may keep the model's weights: those on a lost device are gone."""
        return super().holds_weights(model) and self._residents[model].device.fault is None

    def warm(self, model: str, workspace: Workspace) -> Generator[Segment, None, None]:
        return run_warm(_memory(workspace), self._resident(model))

    def unload(self, model: str) -> None:
        """Free everything the model holds, retained copies included; unloading again does nothing."""
        resident = self._residents.pop(model, None)
        if resident is not None:
            self.regions.forget(resident.layouts)
            resident.free()

    def prefill(
        self,
        workspace: Workspace,
        model: str,
        role: str,
        slot: int,
        start: int,
        tokens: Sequence[int],
        sampler: Sampler | None,
    ) -> Generator[Segment, None, Sampled | None]:
        """Evaluate one chunk; a segment ends after so many multiply-adds."""
        resident = self._resident(model)
        target = resident.slot(role, slot)
        return run_prefill(_memory(workspace), resident.loaded(), target, start, tokens, sampler)

    def decode(
        self, workspace: Workspace, model: str, rows: Sequence[DecodeInput], samplers: Sequence[Sampler]
    ) -> Generator[Segment, None, tuple[Sampled, ...]]:
        """One token for each row in one segment; a row's numbers don't depend on the others."""
        check_rows(rows, samplers)
        resident = self._resident(model)
        slots = [resident.slot("generation", row.slot) for row in rows]
        chosen = run_decode(_memory(workspace), resident.loaded(), slots, rows, samplers)
        yield Segment(last=True)
        return chosen

    def score(
        self,
        workspace: Workspace,
        model: str,
        slot: int,
        start: int,
        tokens: Sequence[int],
        heads: Sequence[str],
    ) -> Generator[Segment, None, tuple[float, ...]]:
        """Evaluate a decision row behind its instruction; values in the order of ``heads``."""
        resident = self._resident(model)
        chosen = resident.facts.choose_heads(heads)
        return run_score(_memory(workspace), resident.loaded(), resident.slot("decision", slot), start, tokens, chosen)

    def logits_all(self, model: str, role: str, slot: int, start: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Evaluate one chunk and return the logits of all its positions, float32 ``(len(tokens), vocabulary)``."""
        resident = self._resident(model)
        return run_logits(self.regions, resident.loaded(), resident.slot(role, slot), start, tokens)

    def copy(
        self, model: str, role: str, source: int, targets: Sequence[int], tokens: int
    ) -> Generator[Segment, None, None]:
        """Copy the first ``tokens`` positions of a slot into others; a segment ends after about 16 MiB."""
        resident = self._resident(model)
        if source in targets:
            raise InvalidRequest(f"slot {source} cannot be copied to itself", slot=source)
        for target in targets:
            yield from resident.mover.copy(resident.slot(role, source), resident.slot(role, target), tokens)

    def save(
        self, model: str, slot: int, tokens: int, handle: int, base: int | None = None, shared: int = 0
    ) -> Generator[Segment, None, None]:
        """Keep a compact copy under a new handle: exactly ``tokens - shared`` times the KV bytes of a token."""
        resident = self._resident(model)
        resident.check_free(handle)
        source, behind = resident.slot("generation", slot), None if base is None else resident.blob(base)
        blob = yield from resident.mover.save(source, resident.facts.geometry, tokens, behind, shared)
        resident.retained[handle] = blob

    def restore(self, model: str, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]:
        """Copy retained KV back. Raises InvalidRequest when its geometry is not the model's, naming the field."""
        resident = self._resident(model)
        blob = resident.blob(handle)
        blob.check(resident.facts.geometry, tokens)
        yield from resident.mover.restore(blob, resident.slot("generation", slot), tokens)


def _memory(workspace: Workspace) -> StepMemory:
    if not isinstance(workspace, StepMemory):
        kind = type(workspace).__name__
        raise InvalidRequest(f"a workspace of this backend is needed, not {kind}: use open_workspace", workspace=kind)
    return workspace
