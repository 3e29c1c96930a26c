"""The MLX backend: every promise of the contract on one device of MLX, with model classes from mlx-lm."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ....actors.errors import InvalidRequest
from ....actors.memory.plan import AllocationPlan
from ....actors.work import DecisionRow, PrefixFile, StepShape
from ...models.locate import ModelSource
from ..batched import FEATURE
from ..contract import (
    MARGIN_PERCENT,
    Capabilities,
    DecodeInput,
    PlanRequest,
    Sampled,
    Sampler,
    Segment,
    Workspace,
)
from ..held import ModelShelf, check_rows
from ..prefix_file import write_prefix
from .description import MlxFacts, read_facts
from .limits import MemoryPolicy, step_charge
from .planning import device_limits, model_plan
from .resident import Resident
from .retained import copy_slot, read_blob, restore_slot, save_slot
from .rows import run_rows
from .steps import run_decode, run_logits, run_prefill, run_score, run_warm
from .streams import DeviceStream
from .workspace import StepMemory


class MlxBackend(ModelShelf[MlxFacts, Resident]):
    """Runs mlx-lm's decoders on MLX's default device, all of them on one stream.

    Steps belong on one thread at a time; describing, planning and charging may be asked for on any. ``models`` gives
    each model key its source. ``margin`` is added to every workspace charge, in percent. ``policy`` is what MLX is told
    of the partition. ``batched`` evaluates the decision rows of a step side by side. For rows of about one length that
    is the faster way, on the CPU device by a tenth; rows that are padded a lot cost their padding there.
    """

    name = "mlx"

    def __init__(
        self,
        models: Mapping[str, ModelSource],
        *,
        margin: int = MARGIN_PERCENT,
        policy: MemoryPolicy | None = None,
        batched: bool = True,
    ) -> None:
        if margin < 0:
            raise InvalidRequest(f"margin is {margin} percent: it must not be negative", margin=margin)
        features = {"teacher_forced_logits", *((FEATURE,) if batched else ())}
        self.capabilities = Capabilities(suspend=True, grid_bound=True, features=frozenset(features))
        super().__init__(models, read_facts)
        self._margin = margin
        self._policy = policy or MemoryPolicy()
        self._limits = device_limits()
        self._stream = DeviceStream()

    def plan(self, model: str, request: PlanRequest) -> AllocationPlan:
        """Every array of the model. Raises InvalidRequest for a head it doesn't have."""
        facts = self._known(model)
        facts.choose_heads(request.heads)
        return model_plan(model, facts, request, self._limits.max_buffer, self._limits.page)

    def charge(self, model: str, shape: StepShape) -> int:
        return step_charge(self._known(model).sizes, shape, self._margin, self._limits.page)

    def open_workspace(self, charge: int) -> StepMemory:
        return StepMemory(charge)

    def load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        """Load weights and allocate KV slots; what the model held before, retained copies too, goes first."""
        return self._stream.drive(self._load(model, request, weights))

    def _load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        resident = self._residents.setdefault(model, Resident(self._known(model)))
        resident.facts = self._known(model)
        resident.slots.clear()
        resident.retained.clear()
        self._policy.apply(self._limits)
        if weights:
            yield from resident.load(self._models[model])
        resident.loaded()
        resident.allocate(request)
        yield Segment(last=True)

    def warm(self, model: str, workspace: Workspace) -> Generator[Segment, None, None]:
        memory = _memory(workspace)
        return self._stream.drive(run_warm(memory, self._resident(model)), memory)

    def unload(self, model: str) -> None:
        """Free everything the model holds, retained copies included; unloading again does nothing."""
        with self._stream.entered():
            self._residents.pop(model, None)
            mx.clear_cache()

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
        """Evaluate one chunk; a segment ends after each layer's keys and values."""
        memory, resident = _memory(workspace), self._resident(model)
        target = resident.slot(role, slot)
        steps = run_prefill(memory, resident.loaded(), target, start, tokens, sampler)
        return self._stream.drive(steps, memory)

    def decode(
        self, workspace: Workspace, model: str, rows: Sequence[DecodeInput], samplers: Sequence[Sampler]
    ) -> Generator[Segment, None, tuple[Sampled, ...]]:
        """One token for each row in one segment; a row's numbers don't depend on the others."""
        check_rows(rows, samplers)
        memory, resident = _memory(workspace), self._resident(model)
        slots = [resident.slot("generation", row.slot) for row in rows]
        return self._stream.drive(run_decode(memory, resident.loaded(), slots, rows, samplers), memory)

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
        memory, resident = _memory(workspace), self._resident(model)
        chosen = resident.facts.choose_heads(heads)
        steps = run_score(memory, resident.loaded(), resident.slot("decision", slot), start, tokens, chosen)
        return self._stream.drive(steps, memory)

    def score_rows(
        self, workspace: Workspace, model: str, rows: Sequence[DecisionRow], heads: Sequence[str]
    ) -> Generator[Segment, None, tuple[tuple[float, ...], ...]]:
        """Evaluate decision rows behind one instruction side by side; a segment ends after each layer."""
        if not rows or len({row.slot for row in rows}) != len(rows) or len({row.start for row in rows}) != 1:
            raise InvalidRequest(
                f"{len(rows)} decision rows cannot be scored side by side: there must be at least one, with a slot of "
                "its own for each, behind one instruction",
                rows=len(rows),
            )
        memory, resident = _memory(workspace), self._resident(model)
        chosen = resident.facts.choose_heads(heads)
        slots = [resident.slot("decision", row.slot) for row in rows]
        return self._stream.drive(run_rows(memory, resident.loaded(), slots, rows, chosen), memory)

    def logits_all(self, model: str, role: str, slot: int, start: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Evaluate one chunk and return the logits of all its positions, float32 ``(len(tokens), vocabulary)``."""
        resident = self._resident(model)
        with self._stream.entered():
            return run_logits(resident.loaded(), resident.slot(role, slot), start, tokens)

    def copy(
        self, model: str, role: str, source: int, targets: Sequence[int], tokens: int
    ) -> Generator[Segment, None, None]:
        """Copy the first ``tokens`` positions of a slot into others; a segment ends after about 16 MiB."""
        resident = self._resident(model)
        if source in targets:
            raise InvalidRequest(f"slot {source} cannot be copied to itself", slot=source)
        origin, others = resident.slot(role, source), [resident.slot(role, target) for target in targets]
        return self._stream.drive(copy_slot(origin, others, tokens))

    def save(
        self, model: str, slot: int, tokens: int, handle: int, base: int | None = None, shared: int = 0
    ) -> Generator[Segment, None, None]:
        """Keep a whole copy under a new handle: exactly ``tokens`` times the KV bytes of a token."""
        resident = self._resident(model)
        resident.check_free(handle)
        if base is not None or shared:
            raise InvalidRequest(
                f"{shared} positions of retained KV {base} are to be shared: this backend keeps every prefix whole",
                base=base,
                shared=shared,
            )
        return self._stream.drive(_keep(resident, slot, tokens, handle))

    def restore(self, model: str, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]:
        """Copy retained KV back. Raises InvalidRequest when its geometry is not the model's, naming the field."""
        resident = self._resident(model)
        blob = resident.blob(handle)
        blob.check(resident.facts.geometry, tokens)
        return self._stream.drive(restore_slot(blob, resident.slot("generation", slot), tokens))

    def store(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """Write retained KV to a file, one layer's part at a time. Raises like ``write_prefix``."""
        resident = self._resident(model)
        geometry, tokens, blob = resident.facts.geometry, len(file.tokens), resident.blob(handle)
        blob.check(geometry, tokens)
        return self._stream.drive(write_prefix(file, self.name, geometry, blob.pieces(tokens)))

    def fetch(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """Read a file to where its KV is retained. Raises ``ArtifactInvalid`` when it is not the model's."""
        resident = self._resident(model)
        resident.check_free(handle)
        return self._stream.drive(_fetch(resident, handle, file, self.name))

    def drop(self, model: str, handle: int) -> None:
        resident = self._holder(model)
        with self._stream.entered():
            resident.retained.pop(handle, None)


def _keep(resident: Resident, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]:
    source = resident.slot("generation", slot)
    resident.retained[handle] = yield from save_slot(source, resident.facts.geometry, tokens)


def _fetch(resident: Resident, handle: int, file: PrefixFile, backend: str) -> Generator[Segment, None, None]:
    resident.retained[handle] = yield from read_blob(file, backend, resident.facts.geometry)


def _memory(workspace: Workspace) -> StepMemory:
    if not isinstance(workspace, StepMemory):
        kind = type(workspace).__name__
        raise InvalidRequest(f"a workspace of this backend is needed, not {kind}: use open_workspace", workspace=kind)
    return workspace
