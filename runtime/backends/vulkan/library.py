"""The binding (PyPI ``vulkan``), the loader and the driver: what is there, and what to install where it is not.

The binding opens the loader when it is imported, so it is imported when somebody asks for the functions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ....actors.errors import CoresidentError, InvalidRequest
from .functions import NAMES, Functions

INSTALL = "pip install 'coresident[vulkan]'"
NO_LOADER = (
    "device.backend is 'vulkan', which needs the Vulkan loader (libvulkan.so.1, vulkan-1.dll or libvulkan.dylib), and "
    "it cannot be opened here: install it (Debian and Ubuntu: apt install libvulkan1; Windows: it comes with the "
    "graphics driver; macOS: the Vulkan SDK)"
)
NO_DRIVER = (
    "the Vulkan loader is here, but no driver answers: install the graphics card's driver, or mesa-vulkan-drivers "
    "for Intel, AMD and the CPU (Debian and Ubuntu: apt install mesa-vulkan-drivers)"
)
MANIFESTS = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES")
"""Variables that tell the loader which driver manifests to read; by default it looks in the system's folders."""


def no_driver(environ: Mapping[str, str] = os.environ) -> InvalidRequest:
    """The error for a loader that finds no driver."""
    return InvalidRequest(
        f"device.backend is 'vulkan': {NO_DRIVER}{_named(environ)}", backend="vulkan", missing=("driver",)
    )


def unreadable_drivers(error: CoresidentError, environ: Mapping[str, str] = os.environ) -> InvalidRequest:
    """The error for a loader that can't even say what its drivers are; it reports a damaged manifest as no memory."""
    return InvalidRequest(
        f"device.backend is 'vulkan': the Vulkan loader cannot read its drivers ({error.message}): look for a damaged "
        f"driver manifest, and reinstall that driver{_named(environ)}",
        backend="vulkan",
        missing=("driver",),
    )


def _named(environ: Mapping[str, str]) -> str:
    """What the environment says of drivers, for the end of a message."""
    named = [f"{name}={environ[name]}" for name in MANIFESTS if environ.get(name)]
    return f"; {' and '.join(named)} must name driver manifests that exist and can be read" if named else ""


def missing() -> tuple[str, ...]:
    """The packages that the backend needs and that are not installed here; imports nothing."""
    return tuple(name for name in ("vulkan",) if find_spec(name) is None)


def require() -> None:
    """Raise ``InvalidRequest``, saying what to install, unless the binding is here."""
    lacking = missing()
    if lacking:
        raise InvalidRequest(
            f"device.backend is 'vulkan', which needs {lacking[0]}, not installed here: {INSTALL}",
            backend="vulkan",
            missing=lacking,
        )


def open_functions() -> Functions:
    """Open the loader and look its functions up.

    Raises:
        InvalidRequest: no binding, no loader, or one that is older than Vulkan 1.1; says what to install.
    """
    require()
    try:
        binding: Any = import_module("vulkan._vulkan")
    except OSError as error:
        # What the binding says on top of it asks for an SDK, which nobody needs.
        raise InvalidRequest(NO_LOADER, backend="vulkan", missing=("loader",)) from error
    try:
        table = {name: getattr(binding.lib, name) for name in NAMES}
    except AttributeError as error:
        raise InvalidRequest(
            f"the Vulkan loader is older than Vulkan 1.1 ({error}): install a newer one", backend="vulkan"
        ) from error
    return Functions(binding.ffi, table, binding)
