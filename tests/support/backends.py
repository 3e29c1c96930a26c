"""Every backend that keeps the whole contract, by name, with one small model loaded."""

from __future__ import annotations

from typing import Any

import pytest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.mlx.library import INSTALL, missing
from coresident.runtime.models.locate import ModelSource

from support.openblas import interposed
from support.parts import require_or_skip
from support.reference import HEADS, MODEL, REQUEST, drain, opened
from support.vulkan_here import needs_vulkan

NAMES = ("reference", "mlx", "vulkan")


def opened_on(name: str, source: ModelSource | None = None, request: PlanRequest = REQUEST, **options: Any) -> Any:
    """A backend with one loaded model, the synthetic one with two verbalizer heads by default."""
    needs(name)
    if name == "reference":
        return opened(source, request, **options)
    backend = _class_of(name)({MODEL: source or ModelSource(heads=HEADS)}, **options)
    drain(backend.load(MODEL, request, weights=True))
    return backend


def _class_of(name: str) -> Any:
    if name == "mlx":
        from coresident.runtime.backends.mlx.backend import MlxBackend

        return MlxBackend
    from coresident.runtime.backends.vulkan.backend import VulkanBackend

    return VulkanBackend


def needs(name: str) -> None:
    """Skip the running test where a backend can't be, or fail it where it must be there."""
    if name == "vulkan":
        needs_vulkan()
    lacking = missing() if name == "mlx" else ()
    if lacking:
        require_or_skip("mlx", f"{', '.join(lacking)} not installed: {INSTALL}")


def needs_rounding_by_shape(name: str) -> None:
    """Skip a test with a control off the chunk grid where products round alike whatever their shapes."""
    if name == "mlx" and not interposed():
        pytest.skip("MLX's own BLAS rounds alike whatever the shapes, so no control can differ: runs under OpenBLAS")
