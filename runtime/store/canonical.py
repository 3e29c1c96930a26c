"""JSON with exactly one spelling, read with bounds.

A text is accepted only when it is, byte for byte, what :func:`canonical` writes of its content: keys sorted, no spaces,
ASCII, no floats. So nothing in it can be changed without changing the content, and a signature or checksum over the
content covers every byte. Size is checked before parsing, and depth before anything else looks at the content.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from ...actors.errors import ArtifactInvalid

DEEPEST = 8
"""Objects and lists inside each other; whatever is done with what was read cannot run out of stack."""


def canonical(content: object) -> bytes:
    """The one spelling of plain data (objects, lists, strings, integers, booleans, null), without an end of line."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def parse(text: bytes, most: int, file: str) -> dict[str, Any]:
    """The object that ``text`` spells, of at most ``most`` bytes.

    Raises:
        ArtifactInvalid: too long, not JSON, not an object, or not in its one spelling; names ``file``.
    """
    if len(text) > most:
        raise bad_value(file, "size", len(text), f"at most {most} bytes are read")
    try:
        content = json.loads(text, object_pairs_hook=_without_repeats, parse_float=_no_float, parse_constant=_no_float)
    except RecursionError:
        raise _too_deep(text, file) from None
    except ValueError as error:
        raise bad_value(file, "content", _shown(text), f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise bad_value(file, "content", _shown(text), "it is not a JSON object")
    if not _is_shallow(content):
        raise _too_deep(text, file)
    if canonical(content) != text:
        raise bad_value(file, "content", _shown(text), "keys must be sorted and nothing may be between them")
    return content


def bad_value(file: str, field: str, value: object, reason: str) -> ArtifactInvalid:
    """The error for a value in a file of the store; long values are cut."""
    shown = repr(value)
    if len(shown) > 100:
        shown = value = f"{shown[:97]}..."
    return ArtifactInvalid(f"{file}: {field} is {shown}: {reason}", file=file, field=field, value=value)


def _is_shallow(content: object) -> bool:
    level = [content]
    for _ in range(DEEPEST):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [child for children in inside for child in children]
    return not any(isinstance(each, dict | list) for each in level)


def _too_deep(text: bytes, file: str) -> ArtifactInvalid:
    return bad_value(file, "content", _shown(text), f"at most {DEEPEST} objects and lists are inside each other")


def _shown(text: bytes) -> str:
    return text[:60].decode("utf-8", "replace")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key is there twice")
    return content


def _no_float(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is not an integer")
