"""The memory check: what a loaded model takes is what its plan says."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import attrs

from .checks import SKIPPED, Bench, Finding
from .contract import Backend

NAME = "memory"
PYTHON_SLACK = 1 << 18
PAGES_SLACK = 1 << 20
SHARE = 100
"""One part in so many may be missing or on top: small objects around the arrays, and rounding to pages."""


@attrs.define
class Growth:
    """Bytes that were allocated inside a block and are still held, or ``None`` where the backend doesn't tell.

    ``slack`` are bytes that such a count may differ by however small the model is; ``most`` those that may be kept for
    later steps, where that is not the charge of one of them.
    """

    how: str
    slack: int = 0
    most: int | None = None
    bytes: int | None = None


def check_memory(bench: Bench) -> Iterator[Finding]:
    """Load the model, and compare the memory that it takes with its plan, buffer by buffer of the same request.

    Then warm it up: what that leaves for the next step (buffers that are taken again) is no part of the plan but of the
    workspace, and no more than its charge, or than the whole budget where steps of each shape have their own buffers.
    """
    plan = bench.backend.plan(bench.model, bench.request)
    with growing(bench.backend) as growth:
        bench.place()
    with growing(bench.backend) as kept:
        bench.warm()
    if growth.bytes is None or kept.bytes is None:
        yield Finding(NAME, "plan against measured", SKIPPED, growth.how, {"planned": plan.total})
        return
    over, allowed = growth.bytes - plan.total, growth.slack + plan.total // SHARE
    detail = (
        f"{growth.bytes:,} bytes measured ({growth.how}), {plan.total:,} planned: {over:+,}; {allowed:,} may be small "
        "objects and rounding"
    )
    figures = {"measured": growth.bytes, "planned": plan.total, "allowed": allowed}
    yield Finding.of(NAME, "plan against measured", abs(over) <= allowed, detail, **figures)
    yield _after_warmup(bench, kept.bytes, allowed, kept.most)
    oversized = plan.oversized()
    if plan.max_buffer is not None:
        fits = oversized is None
        name = "every buffer" if oversized is None else oversized.name
        detail = f"{name} {'fits' if fits else 'does not fit'} the device's largest buffer of {plan.max_buffer:,} bytes"
        yield Finding.of(NAME, "largest buffer", fits, detail, max_buffer=plan.max_buffer)


def _after_warmup(bench: Bench, kept: int, allowed: int, most: int | None) -> Finding:
    charge = bench.measured[-1].charge
    bound = f"{charge:,} charged to the workspace" if most is None else f"of {most:,} in the workspace budget"
    detail = f"{kept:,} bytes kept for the next step, {bound}; {allowed:,} may be small objects and rounding"
    good = kept <= (charge if most is None else most) + allowed
    return Finding.of(NAME, "kept after a step", good, detail, kept=kept, charge=charge)


@contextmanager
def growing(backend: Backend) -> Iterator[Growth]:
    """Measure what the block leaves allocated: by MLX's count, the Vulkan device's, or Python's for NumPy's arrays."""
    if backend.name == "mlx":
        import mlx.core as mx

        growth, before = Growth("as MLX counts it", PAGES_SLACK), mx.get_active_memory()
        yield growth
        growth.bytes = mx.get_active_memory() - before
    elif backend.name == "vulkan":
        from .vulkan.preparing import device_of

        most = cast(Any, backend).regions.limit
        growth, before = Growth("as allocated of the driver", most=most), device_of(backend).allocated
        yield growth
        growth.bytes = device_of(backend).allocated - before
    elif backend.name == "reference":
        growth, began = Growth("as Python counts it", PYTHON_SLACK), tracemalloc.is_tracing()
        if not began:
            tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        try:
            yield growth
            growth.bytes = tracemalloc.get_traced_memory()[0] - before
        finally:
            if not began:
                tracemalloc.stop()
    else:
        yield Growth(f"the backend {backend.name} does not count its memory")
