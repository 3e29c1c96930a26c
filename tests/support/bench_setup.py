"""What a bench is built from."""

from __future__ import annotations

import attrs
from coresident.actors.scoring import DecisionSetup
from coresident.actors.sequences import GenerationSetup
from coresident.actors.supervisor import ModelSetup
from coresident.actors.work import StepKind, StepShape
from coresident.policies.catalog import resolve

HEADS = {"relevance": "rank", "safe": "probability", "route": "choice"}
KV_BYTES = 10


def charge(shape: StepShape) -> int:
    """Workspace of a shape: by kind, rows and tokens."""
    return {StepKind.PREFILL: 400, StepKind.DECODE: 40, StepKind.DECISION: 100}[shape.kind] * shape.rows + shape.tokens


@attrs.frozen
class Bench:
    """What a bench is built from; policies by name, or as callables."""

    ordering: object = "strict"
    quantum: object = "fixed"
    retention: object = "lru"
    abstention: object = "deadline"
    preparation: object = "idle"
    seed: int | None = None
    slots: int = 3
    chunk: int = 8
    context: int = 256
    queue: int = 64
    rows_per_slice: int = 2
    workspace: int = 2000
    retained: int = 4000
    partition: int = 20_000
    reuse_grid: int = 1
    block: int = 0
    can_suspend: bool = True
    prefill_segments: int = 4
    shared: bool = True
    restarts: int = 0

    def policy(self, kind: str):
        named = getattr(self, kind)
        return resolve(kind, named) if isinstance(named, str) else named

    def generation_setup(self) -> GenerationSetup:
        return GenerationSetup(
            model="m",
            context=self.context,
            slots=self.slots,
            chunk=self.chunk,
            queue=self.queue,
            kv_bytes_per_token=KV_BYTES,
            retained_bytes=self.retained,
            charge=charge,
            quantum=self.policy("quantum"),
            retention=self.policy("retention"),
            preparation=self.policy("preparation"),
            reuse_grid=self.reuse_grid,
            retained_block=self.block,
            reruns=min(1, self.restarts),
        )

    def decision_setup(self) -> DecisionSetup:
        return DecisionSetup(
            model="m" if self.shared else "d",
            context=64,
            rows_per_slice=self.rows_per_slice,
            chunk=self.chunk,
            max_rows=8,
            queue=self.queue,
            heads=HEADS,
            charge=charge,
            abstention=self.policy("abstention"),
            reruns=min(1, self.restarts),
        )

    def models(self) -> tuple[ModelSetup, ...]:
        first = ModelSetup("m", (("kv", 2000), ("weights/m", 5000)), 100)
        return (first,) if self.shared else (first, ModelSetup("d", (("weights/d", 1000),), 100))
