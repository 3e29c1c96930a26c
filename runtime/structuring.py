"""Attrs classes from plain data, strictly: no unknown keys, no integer from a string, no tuple from a string's letters.

Sizes are :data:`~coresident.runtime.sizes.Bytes`. What is wrong is told key by key, in plain words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_origin

import attrs
import cattrs
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn
from cattrs.v import format_exception

from ..actors.errors import CoresidentError
from .sizes import Bytes, parse_bytes


def strict_converter() -> cattrs.Converter:
    """A converter of its own, to which hooks may be added."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook_func(lambda cls: cls is Bytes, lambda value, _: parse_bytes(value))
    converter.register_structure_hook(int, _strict(int))
    converter.register_structure_hook(str, _strict(str))
    converter.register_structure_hook_factory(attrs.has, lambda cls: _table(cls, converter))
    converter.register_structure_hook_factory(_is_list, lambda cls: _list(cls, converter))
    return converter


def faults_in(error: cattrs.BaseValidationError, source: str) -> str:
    """Every fault of the data with its key, and ``source`` before it."""
    return "; ".join(cattrs.transform_error(error, path=source, format_exception=_explain))


def _explain(error: BaseException, expected: type | None) -> str:
    if isinstance(error, cattrs.errors.ForbiddenExtraKeysError):
        known = ", ".join(attribute.name for attribute in attrs.fields(error.cl))
        return f"unknown keys {', '.join(sorted(error.extra_fields))}; known are {known}"
    if isinstance(error, ValueError | TypeError | CoresidentError) and error.args:
        return str(error.args[0])
    return format_exception(error, expected)


def _table(cls: type, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """A class from a table, with no other keys than its own."""
    inside: Callable[[Any, Any], Any] = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

    def structure_table(value: Any, _: Any) -> Any:
        check_table(value)
        return inside(value, cls)

    return structure_table


def check_table(value: object) -> None:
    """Raises ``ValueError`` for what has no keys."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a table of keys and values")


def _is_list(cls: Any) -> bool:
    return get_origin(cls) is tuple


def _list(cls: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """A tuple from a list; a string is not a list of its letters."""
    inside: Callable[[Any, Any], list[Any]] = list_structure_factory(cls, converter)

    def structure_list(value: Any, _: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{value!r} is not a list")
        return tuple(inside(value, cls))

    return structure_list


def _strict(kind: type) -> Any:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{value!r} is not {'an integer' if kind is int else 'a string'}")
        return value

    return check
