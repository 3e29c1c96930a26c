"""OpenBLAS in place of the reference BLAS that comes with MLX's CPU wheel, as a plugin: ``pytest -p support.openblas``.

The wheel's BLAS adds in one order whatever a product's shape is; OpenBLAS does not, as no fast library does. So only
under OpenBLAS can a test see that results depend on shapes. It has to be in the process before MLX is.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys

VARIABLE = "CORESIDENT_TESTS_OPENBLAS"


def library() -> str | None:
    """The system's OpenBLAS with plain symbol names, if there is one."""
    return ctypes.util.find_library("openblas")


def interposed() -> bool:
    """Whether this process runs MLX on OpenBLAS."""
    return os.environ.get(VARIABLE) == "1"


if interposed():
    if "mlx.core" in sys.modules:
        raise RuntimeError("MLX was imported before OpenBLAS: its BLAS stays what it is")
    ctypes.CDLL(library(), mode=ctypes.RTLD_GLOBAL)
