"""Between lines of bytes and events: strict both ways.

A line is one JSON object of ASCII. Unknown keys, wrong types, numbers that are not 0 to 2^63 - 1, NaN and repeated
keys are errors that name the field and the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn
from cattrs.v import format_exception

from .format import END, EVENTS, EndOfTrace, Event
from .header import Header

_NAMES = {cls: name for name, cls in EVENTS.items()} | {EndOfTrace: END}
_CLASSES: Mapping[str, type[Any]] = {**EVENTS, END: EndOfTrace}
_MOST = 2**63 - 1
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Malformed(ValueError):
    """A line that the format does not have; the reader adds the file and the line."""


def encode(item: Event | EndOfTrace | Header) -> bytes:
    """One line, its newline included."""
    data: dict[str, Any] = {} if isinstance(item, Header) else {"type": _NAMES[type(item)]}
    data.update(_converter().unstructure(item))
    return _JSON.encode(data).encode() + b"\n"


def decode(line: bytes) -> Event | EndOfTrace:
    """An event from its line. Raises :class:`Malformed`."""
    data = parse(line)
    name = data.pop("type", None)
    if not isinstance(name, str) or name not in _CLASSES:
        raise Malformed(f"type is {name!r}: known are {', '.join(_CLASSES)}")
    event: Event | EndOfTrace = _structure(data, _CLASSES[name], name)
    return event


def decode_header(data: Mapping[str, Any]) -> Header:
    """The header from its parsed line. Raises :class:`Malformed`."""
    header: Header = _structure(data, Header, "header")
    return header


def parse(line: bytes) -> dict[str, Any]:
    """A line as a JSON object. Raises :class:`Malformed`."""
    try:
        data = json.loads(line.decode("ascii"), object_pairs_hook=_once, parse_constant=_no_constant)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("the line nests too deeply") from None
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Malformed(f"not a JSON object but {type(data).__name__}")
    return data


def _structure(data: Mapping[str, Any], cls: type[Any], name: str) -> Any:
    try:
        return _converter().structure(data, cls)
    except cattrs.BaseValidationError as error:
        raise Malformed("; ".join(cattrs.transform_error(error, path=name, format_exception=_explain))) from None
    except (ValueError, TypeError) as error:
        raise Malformed(f"{name}: {error}") from None


def _explain(error: BaseException, expected: type | None) -> str:
    if isinstance(error, cattrs.errors.ForbiddenExtraKeysError):
        known = ", ".join(attribute.name for attribute in attrs.fields(error.cl))
        return f"unknown fields {', '.join(sorted(error.extra_fields))}; known are {known}"
    if isinstance(error, KeyError):
        return f"field {error.args[0]!r} is missing"
    if isinstance(error, ValueError | TypeError) and error.args:
        return str(error.args[0])
    return format_exception(error, expected)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise Malformed(f"a field is given twice among {', '.join(key for key, _ in pairs)}")
    return data


def _no_constant(name: str) -> Any:
    raise Malformed(f"{name} is not a number here")


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, omit_if_default=True)
    converter.register_structure_hook(int, _integer)
    converter.register_structure_hook(str, _exactly(str, "a string"))
    converter.register_structure_hook(bool, _exactly(bool, "true or false"))
    converter.register_structure_hook_func(lambda kind: kind is Any, _scalar)
    converter.register_structure_hook_factory(attrs.has, lambda cls: _object(cls, converter))
    converter.register_structure_hook_factory(_is_list, lambda kind: _list(kind, converter))
    # The header and the last line are read by people and other programs: nothing is left out there.
    for cls in (Header, EndOfTrace):
        converter.register_unstructure_hook(
            cls, make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=False)
        )
    return converter


def _object(cls: type[Any], converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """A class from a JSON object, with no other fields than its own."""
    inside = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

    def check(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is not an object")
        return inside(value, cls)

    return check


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _list(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """A tuple from a JSON list; a string is not a list of its letters."""
    kinds = get_args(kind)
    length = None if kinds[-1] is Ellipsis else len(kinds)
    item = converter.get_structure_hook(kinds[0])

    def check(value: Any, _: Any) -> Any:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise ValueError(f"{value!r} is not a list{'' if length is None else f' of {length}'}")
        return tuple([item(entry, kinds[0]) for entry in value])

    return check


def _integer(value: Any, _: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is not a whole number from 0 to 2^63 - 1")
    return value


def _exactly(kind: type, what: str) -> Any:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{value!r} is not {what}")
        return value

    return check


def _scalar(value: Any, _: Any) -> Any:
    if not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number, a string, true or false")
    return value
