"""The NumPy backend: every promise of the contract on the CPU in float32, the numbers that others are compared with."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from ....actors.errors import InvalidRequest
from ....actors.memory.plan import AllocationPlan
from ....actors.work import StepShape
from ...models.locate import ModelSource
from ..blob_shelf import BlobShelf
from ..blobs import BLOCK
from ..contract import (
    Capabilities,
    DecodeInput,
    PlanRequest,
    Sampled,
    Sampler,
    Segment,
    Workspace,
)
from ..facts import DecoderFacts
from ..held import check_rows
from .accounting import model_plan, step_charge
from .cache import copy_slot, restore_slot, save_slot
from .layout import Array, read_weights
from .resident import Resident, read_facts
from .shapes import ChunkShape, with_region
from .steps import run_decode, run_logits, run_prefill, run_score, run_warm
from .threads import BlasLimit
from .workspace import RegionPool, ScratchWorkspace

POOL_LIMIT = 32 << 20


class ReferenceBackend(BlobShelf[DecoderFacts, Resident]):
    """Runs decoders with NumPy on the calling thread.

    ``models`` gives each model key its source. ``threads`` limits BLAS from the first load to the last unload (a
    setting of the process, see ``threads.py``): one by default, as on busy machines a second thread makes small
    products many times slower. ``max_buffer`` is an artificial limit of one allocation in bytes. ``pool_limit`` bounds
    the idle workspace regions kept for later steps.
    """

    name = "reference"
    capabilities = Capabilities(
        suspend=True, grid_bound=True, features=frozenset({"teacher_forced_logits"}), retained_block=BLOCK
    )

    def __init__(
        self,
        models: Mapping[str, ModelSource],
        *,
        threads: int | None = None,
        max_buffer: int | None = None,
        pool_limit: int = POOL_LIMIT,
    ) -> None:
        if threads is not None and threads < 1:
            raise InvalidRequest(f"threads is {threads}: at least one is needed", threads=threads)
        super().__init__(models, read_facts)
        self._blas = BlasLimit(1 if threads is None else threads)
        self._max_buffer = max_buffer
        self._pool = RegionPool(pool_limit)

    def plan(self, model: str, request: PlanRequest) -> AllocationPlan:
        """Every allocation for the model, exact to the byte. Raises InvalidRequest for a head it doesn't have."""
        facts = self._known(model)
        facts.choose_heads(request.heads)
        return model_plan(model, facts.config, facts.heads.values(), request, self._max_buffer)

    def charge(self, model: str, shape: StepShape) -> int:
        facts = self._known(model)
        return step_charge(facts.config, facts.heads.values(), shape)

    def open_workspace(self, charge: int) -> ScratchWorkspace:
        return ScratchWorkspace(charge, self._pool)

    def load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        """Load weights and allocate KV slots; what the model held before, retained copies too, goes first."""
        facts = self._known(model)
        resident = self._residents.setdefault(model, Resident(facts))
        resident.slots.clear()
        resident.retained.clear()
        self._blas.hold()
        if weights:
            resident.weights = None
            resident.weights = yield from read_weights(facts.reopen(self._models[model]))
        resident.loaded()
        resident.allocate(request)
        yield Segment(last=True)

    def warm(self, model: str, workspace: Workspace) -> Generator[Segment, None, None]:
        return run_warm(_scratch(workspace), self._resident(model))

    def unload(self, model: str) -> None:
        """Free everything the model holds, retained copies included; unloading again does nothing."""
        self._residents.pop(model, None)
        if not self._residents:
            self._blas.release()

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
        """Evaluate one chunk; a segment ends after each projection, attention piece and product."""
        resident = self._resident(model)
        target = resident.slot(role, slot)
        return run_prefill(_scratch(workspace), resident.loaded(), target, start, tokens, sampler)

    def decode(
        self, workspace: Workspace, model: str, rows: Sequence[DecodeInput], samplers: Sequence[Sampler]
    ) -> Generator[Segment, None, tuple[Sampled, ...]]:
        """One token for each row in one segment; a row's numbers don't depend on the others."""
        check_rows(rows, samplers)
        resident = self._resident(model)
        slots = [resident.slot("generation", row.slot) for row in rows]
        sampled = run_decode(_scratch(workspace), resident.loaded(), slots, rows, samplers)
        yield Segment(last=True)
        return sampled

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
        return run_score(_scratch(workspace), resident.loaded(), resident.slot("decision", slot), start, tokens, chosen)

    def logits_all(self, model: str, role: str, slot: int, start: int, tokens: Sequence[int]) -> Array:
        """Evaluate one chunk and return the logits of all its positions, float32 ``(len(tokens), vocabulary)``."""
        resident = self._resident(model)
        target = resident.slot(role, slot)
        target.check(start, len(tokens))
        shape = ChunkShape(resident.facts.config, len(tokens), start + len(tokens))
        scratch = self.open_workspace(with_region(shape.bytes()))
        try:
            return run_logits(scratch, resident.loaded(), target, start, tokens)
        finally:
            scratch.close()

    def copy(
        self, model: str, role: str, source: int, targets: Sequence[int], tokens: int
    ) -> Generator[Segment, None, None]:
        """Copy the first ``tokens`` positions of a slot into others; a segment ends after about 16 MiB."""
        resident = self._resident(model)
        if source in targets:
            raise InvalidRequest(f"slot {source} cannot be copied to itself", slot=source)
        for target in targets:
            yield from copy_slot(resident.slot(role, source), resident.slot(role, target), tokens)

    def save(
        self, model: str, slot: int, tokens: int, handle: int, base: int | None = None, shared: int = 0
    ) -> Generator[Segment, None, None]:
        """Keep a compact copy under a new handle: exactly ``tokens - shared`` times the KV bytes of a token."""
        resident = self._resident(model)
        resident.check_free(handle)
        source, behind = resident.slot("generation", slot), None if base is None else resident.blob(base)
        blob = yield from save_slot(source, resident.facts.geometry, tokens, behind, shared)
        resident.retained[handle] = blob

    def restore(self, model: str, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]:
        """Copy retained KV back. Raises InvalidRequest when its geometry is not the model's, naming the field."""
        resident = self._resident(model)
        blob = resident.blob(handle)
        blob.check(resident.facts.geometry, tokens)
        yield from restore_slot(blob, resident.slot("generation", slot), tokens)


def _scratch(workspace: Workspace) -> ScratchWorkspace:
    if not isinstance(workspace, ScratchWorkspace):
        kind = type(workspace).__name__
        raise InvalidRequest(f"a workspace of this backend is needed, not {kind}: use open_workspace", workspace=kind)
    return workspace
