"""The allocation plan from real array sizes, and what the device says about its memory.

On the CPU an MLX array takes exactly its bytes. On Metal an allocation of a page or more is a buffer of whole pages
(``MetalAllocator::malloc``), and a buffer has a largest size.
"""

from __future__ import annotations

import mmap
from collections import Counter
from typing import Any

import attrs
import mlx.core as mx

from ....actors.errors import InvalidRequest
from ....actors.memory.plan import AllocationPlan, Buffer
from ...models.heads import LinearHead
from ..contract import PlanRequest
from .description import MlxFacts
from .weight_arrays import on_cpu


@attrs.frozen
class Limits:
    """MlxFacts of the device; ``page`` is what allocations are rounded to, ``None`` stands for what it doesn't say.

    ``recommended`` are the bytes that the device can use without being slowed down, ``memory`` those it has.
    """

    device: str
    page: int
    max_buffer: int | None
    recommended: int | None
    memory: int | None


def device_limits() -> Limits:
    """The limits of the device that MLX computes on, as far as it tells them."""
    told: dict[str, Any] = dict(mx.device_info())
    name = str(told.get("device_name", "unknown"))
    if on_cpu():
        return Limits(name, 1, None, None, None)
    return Limits(
        device=name,
        page=mmap.PAGESIZE,
        max_buffer=_whole(told.get("max_buffer_length")),
        recommended=_whole(told.get("max_recommended_working_set_size")),
        memory=_whole(told.get("memory_size")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def check_partition(partition: int, limits: Limits) -> None:
    """Refuse a partition that is more than the device recommends to use, where it tells: beyond that, macOS takes
    memory away from the GPU in the middle of a step.

    Raises:
        InvalidRequest: with both figures.
    """
    if limits.recommended is not None and partition > limits.recommended:
        raise InvalidRequest(
            f"device.partition is {partition} bytes: {limits.device} recommends to use at most {limits.recommended} "
            f"of its {limits.memory or 'unknown'}; lower the partition to that",
            field="device.partition",
            value=partition,
            limit=limits.recommended,
        )


def model_plan(model: str, facts: MlxFacts, request: PlanRequest, max_buffer: int | None, page: int) -> AllocationPlan:
    """Every array of a resident model, heads and KV slots included; all of its heads are counted, asked for or not."""
    return AllocationPlan((*_weights(model, facts, page), *_slots(model, facts, request, page)), max_buffer)


def held_bytes(size: int, page: int) -> int:
    """Bytes that an array of ``size`` bytes takes: whole pages from one page on."""
    return -(-size // page) * page if size >= page else size


def _weights(model: str, facts: MlxFacts, page: int) -> list[Buffer]:
    """Arrays grouped by what they are and their size: one line for the same matrix of all layers."""
    account = f"weights/{model}"
    groups = Counter((_group(one.name), held_bytes(one.bytes, page)) for one in facts.arrays)
    buffers = [Buffer(name, account, size, count) for (name, size), count in groups.items()]
    linear = sum(isinstance(head, LinearHead) for head in facts.heads.values())
    if linear:
        buffers.append(Buffer("linear head", account, held_bytes(4 * facts.sizes.hidden, page), linear))
    return buffers


def _group(name: str) -> str:
    """``model.layers.3.mlp.up_proj.scales`` becomes ``layers: mlp.up_proj.scales``."""
    _, found, rest = name.partition("layers.")
    index, _, tail = rest.partition(".")
    if found and index.isdigit():
        return f"layers: {tail}"
    return name.removeprefix("model.")


def _slots(model: str, facts: MlxFacts, request: PlanRequest, page: int) -> list[Buffer]:
    """Two arrays ``(1, kv_heads, positions, head_dim)`` for each layer of a slot."""
    sizes = facts.sizes
    slots = (
        ("generation", f"kv/{model}", request.slots, request.context),
        ("decision", f"decision_kv/{model}", request.decision_slots, request.decision_context),
    )
    buffers = []
    for role, account, count, capacity in slots:
        if count:
            size = held_bytes(capacity * sizes.position_bytes, page)
            buffers.append(Buffer(f"{role} keys and values", account, size, 2 * sizes.layers * count))
    return buffers
