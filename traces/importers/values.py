"""Values of other formats' fields: exact, bounded, and refused with what was given.

Times become integer nanoseconds without a float in between. What has more than nine decimals is rounded to the nearest
nanosecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, TypeAlias, TypeVar

from ..blocks import LONGEST

_T = TypeVar("_T")
Value: TypeAlias = Callable[[Any], _T]

MOST = 2**63 - 1
_DIGITS = re.compile(r"[0-9]{1,40}")
_DECIMAL = re.compile(r"[0-9]{1,40}(\.[0-9]{0,40})?")
_STAMP = re.compile(
    r"(?P<moment>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?", re.ASCII
)


class Wrong(ValueError):
    """A value that can't be taken; the reader adds file, row and field."""


def whole(least: int, most: int, what: str) -> Value[int]:
    """A reader of whole numbers from ``least`` to ``most``."""

    def read(value: Any) -> int:
        if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise Wrong(f"{_shown(value)}: {what} is a whole number from {least} to {most}")
        return value

    return read


prompt_tokens = whole(1, LONGEST, "a prompt's length")
output_tokens = whole(0, LONGEST, "an output's length")
block_id = whole(0, MOST - 1, "a block's id")


def block_ids(value: Any) -> tuple[int, ...]:
    """Ids of blocks, in order."""
    if not isinstance(value, list):
        raise Wrong(f"{_shown(value)}: a list of ids is needed")
    return tuple(block_id(entry) for entry in value)


def time(unit: int, what: str) -> Value[int]:
    """A reader of times from 0 in units of ``10**unit`` nanoseconds."""

    def read(value: Any) -> int:
        number = _decimal(value)
        if number is None or not number.is_finite() or number < 0 or number.adjusted() > 18:
            raise Wrong(f"{_shown(value)}: {what} is a number from 0, below 292 years")
        ns = int(number.scaleb(unit).to_integral_value(ROUND_HALF_EVEN))
        if ns > MOST:
            raise Wrong(f"{_shown(value)}: {what} is below 292 years")
        return ns

    return read


seconds = time(9, "a time in seconds")
milliseconds = time(6, "a time in milliseconds")


def stamp(value: Any) -> int:
    """Nanoseconds since 1970 of ``2023-11-16 18:15:46.6805900`` or ``2024-05-10 00:00:00.009930+00:00``.

    One without a zone is taken for UTC.
    """
    found = _STAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise Wrong(f"{_shown(value)}: a time such as 2023-11-16 18:15:46.6805900 is needed")
    try:
        moment = datetime.fromisoformat(found["moment"] + (found["zone"] or "+00:00"))
    except ValueError as error:
        raise Wrong(f"{_shown(value)}: {error}") from None
    ns = int(moment.timestamp()) * 10**9 + int((found["part"] or "").ljust(9, "0"))
    if not 0 <= ns <= MOST:
        raise Wrong(f"{_shown(value)}: times from 1970 to 2262 are read")
    return ns


def text(value: Any) -> str:
    """A string, or a whole number as one."""
    if type(value) not in (str, int) or len(str(value)) > 1000:
        raise Wrong(f"{_shown(value)}: a name is needed")
    return str(value)


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, str):
        return Decimal(value.strip()) if _DECIMAL.fullmatch(value.strip()) else None
    if isinstance(value, Decimal) or type(value) is int:
        return Decimal(value)
    return None


def _shown(value: Any) -> str:
    seen = str(value) if isinstance(value, Decimal) else repr(value)
    return seen if len(seen) <= 80 else f"{seen[:77]}..."
