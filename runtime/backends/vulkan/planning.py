"""What the backend allocates, as arithmetic: the buffers of a resident model and the workspace of a step.

Sizes of allocations come from the device, which answers without allocating.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ....actors.memory.plan import AllocationPlan, Buffer
from ....actors.work import StepKind, StepShape
from ..contract import PlanRequest
from .arena import Packing, Piece, pack
from .attending import kv_bytes
from .facts import VulkanFacts
from .limits import Limits
from .products import largest_piece
from .shapes import LEAST_CONTEXT, Layouts, Requirement, class_for

STAGING = 4 << 20
"""Bytes through which weights and retained KV go to and from the device."""

STEP_SHARE = 4
"""One in so many of the allocations that a device allows is left for steps."""


def kv_packing(facts: VulkanFacts, slots: int, capacity: int, limits: Limits) -> Packing:
    """Where the keys and values of a role's slots lie; ``kv_name`` has their names."""
    config = facts.config
    size = kv_bytes(config.kv_heads, config.head_dim, capacity)
    pieces = [
        Piece(kv_name(slot, layer, part), size)
        for slot in range(slots)
        for layer in range(config.layers)
        for part in ("keys", "values")
    ]
    return pack(pieces, largest_piece(limits), limits.alignment)


def kv_name(slot: int, layer: int, part: str) -> str:
    """The piece of a layer's keys or values in a slot."""
    return f"{slot}.{layer}.{part}"


def roles(request: PlanRequest) -> tuple[tuple[str, str, int, int], ...]:
    """``(role, account, slots, capacity)`` of a plan."""
    return (
        ("generation", "kv", request.slots, request.context),
        ("decision", "decision_kv", request.decision_slots, request.decision_context),
    )


def staging_bytes(limits: Limits) -> int:
    """Bytes of a model's staging buffer."""
    return min(STAGING, largest_piece(limits))


def model_plan(model: str, layouts: Layouts, request: PlanRequest) -> AllocationPlan:
    """Every allocation of a resident model, exact to the byte, and the largest array that its steps need, uncounted.

    All of a model's heads are counted, asked for or not.
    """
    weights = f"weights/{model}"
    facts, limits, requirement = layouts.facts, layouts.limits, layouts.requirement
    buffers = _buffers("weights", weights, layouts.weights.blocks, requirement)
    buffers.append(Buffer("staging", weights, requirement(staging_bytes(limits))))
    for role, account, slots, capacity in roles(request):
        if slots:
            blocks = kv_packing(facts, slots, capacity, limits).blocks
            buffers += _buffers(f"{role} keys and values", f"{account}/{model}", blocks, requirement)
    largest = max(largest_array(layouts, request))
    buffers.append(Buffer("largest array of a step", weights, largest, count=0))
    count = limits.max_allocations - limits.max_allocations // STEP_SHARE
    return AllocationPlan(tuple(buffers), limits.block, count)


def _buffers(name: str, account: str, blocks: Iterable[int], requirement: Requirement) -> list[Buffer]:
    """Allocations of equal size together, in the order in which they come first."""
    sizes = Counter(requirement(block) for block in blocks)
    return [Buffer(name, account, size, count) for size, count in sizes.items()]


def largest_array(layouts: Layouts, request: PlanRequest) -> list[int]:
    """Bytes of the arrays of this plan's largest steps, and of what each tells the host."""
    shapes = (
        StepShape(StepKind.PREFILL, 1, request.chunk, max(request.chunk, request.context)),
        StepShape(StepKind.DECISION, 1, max(1, request.decision_context), max(1, request.decision_context)),
        StepShape(StepKind.DECODE, max(1, request.slots), 1, request.context),
    )
    forms = [form for shape in shapes for form in class_for(layouts, shape)]
    sizes = [piece.bytes for form in forms for piece in layouts.arrays(form)]
    return [*sizes, *(layouts.host_bytes(form) for form in forms)]


def step_charge(layouts: Layouts, shape: StepShape) -> int:
    """Workspace bytes of a step: an upper bound for every smaller shape.

    Decision rows run one after the other in the same memory, so their number does not count.
    """
    contexts, below = [shape.context], LEAST_CONTEXT
    while below < shape.context:
        contexts.append(below)
        below *= 2
    smaller = (StepShape(shape.kind, shape.rows, shape.tokens, context) for context in contexts)
    return max((layouts.region_bytes(form) for each in smaller for form in class_for(layouts, each)), default=0)
