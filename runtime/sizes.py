"""Sizes in bytes, as integers or as strings with a unit (``"512 MiB"``, ``"2 GB"``)."""

from __future__ import annotations

import re
from typing import NewType

Bytes = NewType("Bytes", int)

MIB = 1024**2
GIB = 1024**3
_DECIMAL = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS = _DECIMAL | {"kib": 1024, "mib": MIB, "gib": GIB, "tib": 1024 * GIB}


def parse_bytes(value: object) -> int:
    """Bytes from an integer or a string with a unit. Raises ``ValueError`` with what was given."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", value)
        if found and found[2].lower() in _UNITS:
            return int(float(found[1]) * _UNITS[found[2].lower()])
    raise ValueError(f"{value!r} is not a size: give bytes, or a number with a unit such as '512 MiB'")
