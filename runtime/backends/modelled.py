"""The modelled device: it computes nothing and takes the time that a cost model says.

Step times are linear: a fixed part, a part per new token, and a part per token of context read. Tokens come from
the request's own stream, scores from a hash of the row, so a run has outcomes that depend on nothing but its input.
Used by the virtual host; on a real clock, :class:`SleepingBackend` passes the time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Sequence
from typing import TypeVar

import attrs
import numpy as np

from ...actors.errors import InvalidRequest
from ...actors.memory.plan import AllocationPlan, Buffer
from ...actors.work import PrefixFile, StepKind, StepShape
from .contract import (
    Capabilities,
    DecodeInput,
    ModelDescription,
    PlanRequest,
    Sampled,
    Sampler,
    Segment,
    Workspace,
)
from .prefix_file import read_prefix, write_prefix
from .prefix_header import Geometry

_T = TypeVar("_T")


@attrs.frozen
class CostModel:
    """A device and model in numbers: nanoseconds and bytes.

    A chunk of ``n`` tokens that ends at context ``c`` takes ``step_ns + n * prefill_ns + n * c * attention_ns //
    1000`` in ``segments`` equal segments; one decoded token of ``r`` rows takes ``step_ns + decode_ns + r * row_ns``.
    """

    label: str = "modelled"
    step_ns: int = 200_000
    prefill_ns: int = 500_000
    attention_ns: int = 20
    decode_ns: int = 20_000_000
    row_ns: int = 2_000_000
    copy_ns: int = 1_000
    load_ns: int = 1_000_000
    segments: int = 8
    weights: int = 256 * 1024**2
    kv_bytes_per_token: int = 16 * 1024
    workspace_per_token: int = 64 * 1024
    context_limit: int = 32_768
    vocabulary: int = 32_000
    suspend: bool = True
    windows: tuple[int | None, ...] = ()


@attrs.define
class _Space:
    charge: int

    def peak(self) -> int:
        return self.charge

    def close(self) -> None:
        self.charge = 0


class ModelledBackend:
    """A :class:`~coresident.runtime.backends.contract.Backend` that takes time and does nothing else."""

    name = "modelled"

    def __init__(self, cost: CostModel | None = None, heads: tuple[str, ...] = ()) -> None:
        self.cost = cost or CostModel()
        self.capabilities = Capabilities(suspend=self.cost.suspend, grid_bound=False)
        self._heads = heads
        self._loaded: set[str] = set()
        self._retained: dict[tuple[str, int], int] = {}

    def describe(self, model: str) -> ModelDescription:
        cost = self.cost
        digest = hashlib.sha256(f"{model} {cost}".encode()).hexdigest()
        return ModelDescription(
            label=cost.label,
            architecture="modelled",
            digest=digest,
            context_limit=cost.context_limit,
            vocabulary=cost.vocabulary,
            parameters=cost.weights // 4,
            layers=cost.segments,
            kv_bytes_per_token=cost.kv_bytes_per_token,
            stop_tokens=(),
            heads=self._heads,
            windows=cost.windows,
        )

    def plan(self, model: str, request: PlanRequest) -> AllocationPlan:
        per_token = self.cost.kv_bytes_per_token
        buffers = [Buffer("weights", f"weights/{model}", self.cost.weights)]
        if request.slots:
            buffers.append(Buffer("KV", f"kv/{model}", request.context * per_token, request.slots))
        if request.decision_slots:
            size = request.decision_context * per_token
            buffers.append(Buffer("decision KV", f"decision_kv/{model}", size, request.decision_slots))
        return AllocationPlan(tuple(buffers))

    def charge(self, model: str, shape: StepShape) -> int:
        tokens = shape.rows if shape.kind is StepKind.DECODE else shape.rows * shape.tokens
        return tokens * self.cost.workspace_per_token

    def open_workspace(self, charge: int) -> Workspace:
        return _Space(charge)

    def load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        yield from self._spend(self.cost.load_ns)
        self._loaded.add(model)
        self._retained = {key: tokens for key, tokens in self._retained.items() if key[0] != model}

    def warm(self, model: str, workspace: Workspace) -> Generator[Segment, None, None]:
        yield from self._spend(self.cost.step_ns)

    def unload(self, model: str) -> None:
        self._loaded.discard(model)

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
        yield from self._spend(self._chunk_ns(start, len(tokens)), self.cost.segments)
        return sampler.sample(np.zeros(1, dtype=np.float32)) if sampler is not None else None

    def decode(
        self, workspace: Workspace, model: str, rows: Sequence[DecodeInput], samplers: Sequence[Sampler]
    ) -> Generator[Segment, None, tuple[Sampled, ...]]:
        yield from self._spend(self.cost.step_ns + self.cost.decode_ns + len(rows) * self.cost.row_ns)
        return tuple(sampler.sample(np.zeros(1, dtype=np.float32)) for sampler in samplers)

    def score(
        self,
        workspace: Workspace,
        model: str,
        slot: int,
        start: int,
        tokens: Sequence[int],
        heads: Sequence[str],
    ) -> Generator[Segment, None, tuple[float, ...]]:
        yield from self._spend(self._chunk_ns(start, len(tokens)), self.cost.segments)
        return tuple(_score(head, tokens) for head in heads)

    def copy(
        self, model: str, role: str, source: int, targets: Sequence[int], tokens: int
    ) -> Generator[Segment, None, None]:
        yield from self._spend(self.cost.copy_ns * tokens * len(targets))

    def save(self, model: str, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]:
        yield from self._spend(self.cost.copy_ns * tokens)
        self._retained[model, handle] = tokens

    def restore(self, model: str, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]:
        self._check_held(model, handle, tokens)
        yield from self._spend(self.cost.copy_ns * tokens)

    def store(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """A real file, but with no keys and values: there are none."""
        self._check_held(model, handle, len(file.tokens))
        yield from self._spend(self.cost.copy_ns * len(file.tokens))
        yield from write_prefix(file, self.name, self._geometry(model), ())

    def fetch(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        yield from self._spend(self.cost.copy_ns * len(file.tokens))
        yield from read_prefix(file, self.name, self._geometry(model), ())
        self._retained[model, handle] = len(file.tokens)

    def drop(self, model: str, handle: int) -> None:
        self._retained.pop((model, handle), None)

    def _check_held(self, model: str, handle: int, tokens: int) -> None:
        held = self._retained.get((model, handle), 0)
        if tokens > held:
            raise InvalidRequest(f"{tokens} tokens were asked of handle {handle} of {model}, which holds {held}")

    def _geometry(self, model: str) -> Geometry:
        return Geometry(self.describe(model).digest, layers=0, kv_heads=0, head_dim=0)

    def _chunk_ns(self, start: int, tokens: int) -> int:
        cost = self.cost
        return cost.step_ns + tokens * cost.prefill_ns + tokens * (start + tokens) * cost.attention_ns // 1000

    def _spend(self, total: int, segments: int = 1) -> Generator[Segment, None, None]:
        """``total`` nanoseconds in equal segments, the remainder in the last."""
        each = total // segments
        for index in range(segments):
            last = index == segments - 1
            yield self._pass(Segment(total - each * (segments - 1) if last else each, last=last))

    def _pass(self, segment: Segment) -> Segment:
        return segment


class SleepingBackend(ModelledBackend):
    """A modelled device for a real clock: its segments take their time on the executor's thread."""

    def _pass(self, segment: Segment) -> Segment:
        time.sleep(segment.device_ns / 1e9)
        return segment


class CountingSampler:
    """A sampler for modelled devices: tokens are a hash of a seed and the position in the answer."""

    def __init__(self, seed: int, vocabulary: int = 32_000) -> None:
        self._seed = seed
        self._vocabulary = vocabulary
        self._count = 0

    def sample(self, logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Sampled:
        self._count += 1
        digest = hashlib.blake2b(f"{self._seed} {self._count}".encode(), digest_size=8).digest()
        return Sampled(int.from_bytes(digest, "little") % self._vocabulary)


def _score(head: str, tokens: Sequence[int]) -> float:
    data = head.encode() + np.asarray(tokens, dtype="<i8").tobytes()
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**63 * 4 - 4
