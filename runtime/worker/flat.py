"""Attrs values as flat JSON objects: scalars and lists of scalars, nothing deeper.

A value inside a value has its fields under a prefix (``file_path``). A list of values is one list for each field
(``rows_slot``); a field that is itself a list is one long list, with the length of each part beside it
(``rows_tokens``, ``rows_tokens_counts``). Floats are written as Python's ``json`` writes them and come back equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

import attrs
import numpy as np

from .frames import FrameInvalid

Body: TypeAlias = Mapping[str, Any]
_T = TypeVar("_T")
_SCALARS = {str, int, float, bool, NoneType}
_INTEGERS = frozenset((int,))
COUNTS = "_counts"


def encode_body(body: Body) -> bytes:
    """A flat object as JSON in ASCII, keys in the order given; also text that has no UTF-8, such as a file's name."""
    return _ENCODER.encode(body).encode("ascii")


def decode_body(data: bytes) -> Body:
    """A flat object with a ``kind`` and an ``id``. Raises ``FrameInvalid`` for anything else."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FrameInvalid(f"a frame of {len(data)} bytes is not JSON: {error}") from error
    if not isinstance(body, dict) or type(body.get("kind")) is not str or type(body.get("id")) is not int:
        raise FrameInvalid(f"a frame of {len(data)} bytes is no object with a kind and an id")
    for name, value in body.items():
        found = set(map(type, value)) if type(value) is list else {type(value)}
        if not found <= _SCALARS:
            raise FrameInvalid(f"field {name} of a {body['kind']} frame is neither a scalar nor a list of scalars")
    return body


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} has no place in a flat body")


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_plain)


@attrs.frozen
class _Field:
    """A field of an attrs value: itself one (``value``), a list of such (``row``), a list of scalars, or a scalar.

    ``column`` and ``scalar`` are the types that the last two may have, and ``kind`` is what errors say of them.
    """

    name: str
    kind: Any
    value: type | None = None
    row: type | None = None
    column: frozenset[type] | None = None
    scalar: frozenset[type] = frozenset()


def _found(kind: Any) -> tuple[_Field, ...]:
    attrs.resolve_types(kind)
    return tuple([_field(attribute.name, attribute.type) for attribute in attrs.fields(kind)])


_fields: Callable[[Any], tuple[_Field, ...]] = cache(_found)


def _field(name: str, kind: Any) -> _Field:
    if attrs.has(kind):
        return _Field(name, kind, value=kind)
    if get_origin(kind) is not tuple:
        return _Field(name, kind, scalar=_types(kind))
    inner = get_args(kind)[0]
    return _Field(name, inner, row=inner) if attrs.has(inner) else _Field(name, inner, column=_types(inner))


def _types(kind: Any) -> frozenset[type]:
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    # A whole float may have been given as an integer.
    return frozenset((*kinds, int) if float in kinds else kinds)


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of an attrs value."""
    fields: dict[str, Any] = {}
    for field in _fields(type(value)):
        name, item = prefix + field.name, getattr(value, field.name)
        if field.value is not None:
            fields |= flatten(item, f"{name}_")
        elif field.row is not None:
            fields |= flatten_rows(field.row, item, f"{name}_")
        else:
            fields[name] = item
    return fields


def flatten_rows(kind: type, rows: Sequence[Any], prefix: str) -> dict[str, Any]:
    """One list for each field of a list of attrs values."""
    fields: dict[str, Any] = {}
    for field in _fields(kind):
        name, column = prefix + field.name, [getattr(row, field.name) for row in rows]
        if field.column is not None:
            fields[name] = [item for part in column for item in part]
            fields[name + COUNTS] = [len(part) for part in column]
        else:
            fields[name] = column
    return fields


def unflatten(kind: type[_T], body: Body, prefix: str = "") -> _T:
    """An attrs value from its fields. Raises ``FrameInvalid`` naming the field that is missing or wrong."""
    values: dict[str, Any] = {}
    for field in _fields(kind):
        name = prefix + field.name
        if field.value is not None:
            values[field.name] = unflatten(field.value, body, f"{name}_")
        elif field.row is not None:
            values[field.name] = unflatten_rows(field.row, body, f"{name}_")
        elif field.column is not None:
            values[field.name] = tuple(_column(body, name, field.column, field.kind))
        else:
            values[field.name] = item = _item(body, name)
            if type(item) not in field.scalar:
                raise _wrong(body, name, item, field.kind)
    return kind(**values)


def unflatten_rows(kind: type[_T], body: Body, prefix: str) -> tuple[_T, ...]:
    """A list of attrs values from one list for each field. Raises ``FrameInvalid`` as ``unflatten``."""
    columns: dict[str, Sequence[Any]] = {}
    for field in _fields(kind):
        name = prefix + field.name
        if field.column is not None:
            columns[field.name] = _parts(body, name, _column(body, name, field.column, field.kind))
        else:
            columns[field.name] = _column(body, name, field.scalar, field.kind)
    if len({len(column) for column in columns.values()}) > 1:
        sizes = {prefix + name: len(column) for name, column in columns.items()}
        raise FrameInvalid(f"the lists of a {body['kind']} frame have different lengths: {sizes}")
    names = tuple(columns)
    return tuple([kind(**dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)])


def _parts(body: Body, name: str, flat: Sequence[Any]) -> list[tuple[Any, ...]]:
    counts = _column(body, name + COUNTS, _INTEGERS, int)
    if min(counts, default=0) < 0 or sum(counts) != len(flat):
        raise FrameInvalid(f"{name}{COUNTS} of a {body['kind']} frame don't add up to its {len(flat)} items")
    parts, start = [], 0
    for count in counts:
        parts.append(tuple(flat[start : start + count]))
        start += count
    return parts


def _column(body: Body, name: str, types: frozenset[type], kind: Any) -> list[Any]:
    items = _item(body, name)
    if not isinstance(items, list):
        raise FrameInvalid(f"field {name} of a {body['kind']} frame is {items!r:.200}, not a list")
    if not types.issuperset(map(type, items)):
        raise _wrong(body, name, next(item for item in items if type(item) not in types), kind)
    return items


def _item(body: Body, name: str) -> Any:
    try:
        return body[name]
    except KeyError:
        raise FrameInvalid(f"a {body['kind']} frame has no field {name}", field=name) from None


def _wrong(body: Body, name: str, value: Any, kind: Any) -> FrameInvalid:
    return FrameInvalid(f"field {name} of a {body['kind']} frame is {value!r:.200}, not {kind}", field=name)
