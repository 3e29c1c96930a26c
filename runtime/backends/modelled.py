"""The modelled device: it computes nothing and takes the time that a device model says.

Tokens come from the request's own stream, scores from a hash of the row, so a run has outcomes that depend on nothing
but its input. Used by the virtual host; on a real clock, :class:`SleepingBackend` passes the time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Sequence

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
from .device_model import LONGEST_NS, CostModel, DeviceModel
from .prefix_file import read_prefix, write_prefix
from .prefix_header import Geometry

__all__ = ["CostModel", "CountingSampler", "ModelledBackend", "SleepingBackend"]

RETAINED_BLOCK = 64
_LOGITS = np.zeros(1, dtype=np.float32)
_MASK = 2**64 - 1


@attrs.define
class _Space:
    charge: int

    def peak(self) -> int:
        return self.charge

    def close(self) -> None:
        self.charge = 0


class ModelledBackend:
    """A :class:`~coresident.runtime.backends.contract.Backend` that takes time and does nothing else.

    Every resident model is the device model's. ``seed`` draws the noise of a device model that has some.
    """

    name = "modelled"

    def __init__(
        self, model: DeviceModel | CostModel | None = None, heads: tuple[str, ...] = (), seed: int = 0
    ) -> None:
        model = model or CostModel()
        self.model = model.device() if isinstance(model, CostModel) else model
        self.capabilities = Capabilities(
            suspend=self.model.suspend, grid_bound=False, gap_ns=self.model.gap_ns, retained_block=RETAINED_BLOCK
        )
        self._times, self._noise = self.model.times, self.model.noise
        self._heads = heads
        self._seed = seed
        self._operations = 0
        self._digests: dict[str, str] = {}
        self._loaded: set[str] = set()
        self._retained: dict[tuple[str, int], int] = {}

    def describe(self, model: str) -> ModelDescription:
        device = self.model
        return ModelDescription(
            label=device.label,
            architecture="modelled",
            digest=self._digest(model),
            context_limit=device.context_limit,
            vocabulary=device.vocabulary,
            parameters=device.memory.weights // 4,
            layers=device.segments,
            kv_bytes_per_token=device.memory.kv_per_token,
            stop_tokens=(),
            heads=self._heads,
            windows=device.windows,
        )

    def plan(self, model: str, request: PlanRequest) -> AllocationPlan:
        memory = self.model.memory
        buffers = [Buffer("weights", f"weights/{model}", memory.weights)]
        if request.slots:
            size = memory.kv_fixed + request.context * memory.kv_per_token
            buffers.append(Buffer("KV", f"kv/{model}", size, request.slots))
        if request.decision_slots:
            size = memory.decision_kv_fixed + request.decision_context * memory.per_decision_token
            buffers.append(Buffer("decision KV", f"decision_kv/{model}", size, request.decision_slots))
        return AllocationPlan(tuple(buffers))

    def charge(self, model: str, shape: StepShape) -> int:
        tokens = shape.rows if shape.kind is StepKind.DECODE else shape.rows * shape.tokens
        return self.model.memory.charge(tokens, shape.context)

    def open_workspace(self, charge: int) -> Workspace:
        return _Space(charge)

    def load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        yield from self._spend(self._times.load.ns(self.model.memory.weights if weights else 0, 0))
        self._loaded.add(model)
        self._retained = {key: tokens for key, tokens in self._retained.items() if key[0] != model}

    def warm(self, model: str, workspace: Workspace) -> Generator[Segment, None, None]:
        yield from self._spend(self._times.warmup.ns(1, 0))

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
        count = len(tokens)
        yield from self._spend(self._times.prefill.ns(count, start + count), self.model.segments)
        return sampler.sample(_LOGITS) if sampler is not None else None

    def decode(
        self, workspace: Workspace, model: str, rows: Sequence[DecodeInput], samplers: Sequence[Sampler]
    ) -> Generator[Segment, None, tuple[Sampled, ...]]:
        position = sum([row.position for row in rows]) // len(rows)
        yield self._pass(Segment(self._taken(self._times.decode.ns(len(rows), position)), last=True))
        return tuple([sampler.sample(_LOGITS) for sampler in samplers])

    def score(
        self,
        workspace: Workspace,
        model: str,
        slot: int,
        start: int,
        tokens: Sequence[int],
        heads: Sequence[str],
    ) -> Generator[Segment, None, tuple[float, ...]]:
        count = len(tokens)
        yield from self._spend(self._times.decision.ns(count, start + count), self.model.segments)
        return tuple(_score(head, tokens) for head in heads)

    def copy(
        self, model: str, role: str, source: int, targets: Sequence[int], tokens: int
    ) -> Generator[Segment, None, None]:
        yield from self._spend(self._times.copy.ns(tokens * len(targets), tokens))

    def save(
        self, model: str, slot: int, tokens: int, handle: int, base: int | None = None, shared: int = 0
    ) -> Generator[Segment, None, None]:
        if base is not None:
            self._check_held(model, base, shared)
        yield from self._spend(self._times.save.ns(tokens - shared, tokens))
        self._retained[model, handle] = tokens

    def restore(self, model: str, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]:
        self._check_held(model, handle, tokens)
        yield from self._spend(self._times.restore.ns(tokens, tokens))

    def store(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """A real file, but with no keys and values: there are none."""
        tokens = len(file.tokens)
        self._check_held(model, handle, tokens)
        yield from self._spend(self._times.store.ns(tokens, tokens))
        yield from write_prefix(file, self.name, self._geometry(model), ())

    def fetch(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        tokens = len(file.tokens)
        yield from self._spend(self._times.fetch.ns(tokens, tokens))
        yield from read_prefix(file, self.name, self._geometry(model), ())
        self._retained[model, handle] = tokens

    def drop(self, model: str, handle: int) -> None:
        self._retained.pop((model, handle), None)

    def _check_held(self, model: str, handle: int, tokens: int) -> None:
        held = self._retained.get((model, handle), 0)
        if tokens > held:
            raise InvalidRequest(f"{tokens} tokens were asked of handle {handle} of {model}, which holds {held}")

    def _digest(self, model: str) -> str:
        """What the model is, whatever time it takes."""
        if model not in self._digests:
            device = self.model
            identity = (model, device.label, device.memory, device.context_limit, device.vocabulary, device.windows)
            self._digests[model] = hashlib.sha256(repr(identity).encode()).hexdigest()
        return self._digests[model]

    def _geometry(self, model: str) -> Geometry:
        return Geometry(self._digest(model), layers=0, kv_heads=0, head_dim=0)

    def _spend(self, total: int, segments: int = 1) -> Generator[Segment, None, None]:
        """``total`` nanoseconds in equal segments, the remainder in the last."""
        total = self._taken(total)
        each = total // segments
        for _ in range(segments - 1):
            yield self._pass(Segment(each))
        yield self._pass(Segment(total - each * (segments - 1), last=True))

    def _taken(self, total: int) -> int:
        """A time with the noise of the next operation: equal for equal seeds and counts, on every machine."""
        if self._noise:
            self._operations += 1
            share = _splitmix(self._seed, self._operations) / 2**63 - 1.0
            total = int(total * (1.0 + self._noise * share))
        return min(total, LONGEST_NS)

    def _pass(self, segment: Segment) -> Segment:
        return segment


def _splitmix(seed: int, count: int) -> int:
    """Number ``count`` of the SplitMix64 generator of ``seed`` (Steele, Lea and Flood, OOPSLA 2014)."""
    z = (seed + count * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


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
