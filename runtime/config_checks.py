"""Bounds of the numbers in a configuration; the error names the key and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

Check: TypeAlias = "Callable[[Any, attrs.Attribute[Any], Any], None]"


def at_least(least: int) -> Check:
    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value < least:
            raise ValueError(f"{attribute.name} is {value}: it must be at least {least}")

    return check


def percent(_: Any, attribute: attrs.Attribute[Any], value: int) -> None:
    if not 1 <= value <= 100:
        raise ValueError(f"{attribute.name} is {value}: it must be from 1 to 100 percent")


positive = at_least(1)
