"""What the backend allocates, as arithmetic: the plan of a resident model and the workspace charge of a step."""

from __future__ import annotations

from collections.abc import Iterable

from ....actors.memory.plan import AllocationPlan, Buffer
from ....actors.work import StepKind, StepShape
from ...models.architecture import DecoderConfig
from ...models.heads import Head, LinearHead
from ..contract import PlanRequest
from .cache import slot_buffer_bytes
from .layout import layer_bytes, matrix_bytes, norm_bytes
from .scoring import heads_bytes
from .shapes import ChunkShape, with_region
from .workspace import aligned


def plan_buffers(model: str, config: DecoderConfig, heads: Iterable[Head], request: PlanRequest) -> tuple[Buffer, ...]:
    """Every allocation of a resident model, exact to the byte; all of a model's heads are counted, asked for or not."""
    weights = f"weights/{model}"
    buffers = [Buffer("embedding", weights, matrix_bytes(config))]
    if not config.tied:
        buffers.append(Buffer("output", weights, matrix_bytes(config)))
    buffers.append(Buffer("layer", weights, layer_bytes(config), config.layers))
    buffers.append(Buffer("final norm", weights, norm_bytes(config)))
    linear = sum(isinstance(head, LinearHead) for head in heads)
    if linear:
        buffers.append(Buffer("linear head", weights, 4 * config.hidden, linear))
    slots = (
        ("generation", f"kv/{model}", request.slots, request.context),
        ("decision", f"decision_kv/{model}", request.decision_slots, request.decision_context),
    )
    for role, account, count, capacity in slots:
        if count:
            arrays = count * config.layers * 2
            buffers.append(Buffer(f"{role} keys and values", account, slot_buffer_bytes(config, capacity), arrays))
    return tuple(buffers)


def model_plan(
    model: str, config: DecoderConfig, heads: Iterable[Head], request: PlanRequest, max_buffer: int | None
) -> AllocationPlan:
    """The plan that context admission asks for."""
    return AllocationPlan(plan_buffers(model, config, heads, request), max_buffer)


def step_charge(config: DecoderConfig, heads: Iterable[Head], shape: StepShape) -> int:
    """Workspace bytes of a step: an upper bound for every smaller shape, and what this very shape takes.

    Decision rows run one after the other in the same memory, so their number does not count.
    """
    if shape.kind not in (StepKind.PREFILL, StepKind.DECODE, StepKind.DECISION, StepKind.WARMUP):
        return 0
    chunk = ChunkShape(config, max(1, min(shape.tokens, shape.context)), max(1, shape.context)).bytes()
    row = ChunkShape(config, 1, max(1, shape.context)).bytes()
    logits = aligned(4 * config.vocabulary)
    by_kind = {
        StepKind.PREFILL: chunk + logits,
        StepKind.DECODE: shape.rows * row + logits,
        StepKind.DECISION: chunk + heads_bytes(config, heads),
    }
    if shape.kind is StepKind.WARMUP:
        return with_region(max(by_kind.values()))
    return with_region(by_kind[shape.kind])
