"""The front door: what ``import coresident`` offers, all of it and nothing else."""

from __future__ import annotations

import inspect
import types

import coresident


def by_kind(name: str) -> tuple[bool, bool, str]:
    """Constants first, then classes, then the rest: the order that ruff's RUF022 keeps."""
    return (not (name.isupper() and len(name) > 1), not name[0].isupper(), name)


def test_all_is_sorted_without_repeats() -> None:
    assert coresident.__all__
    assert list(coresident.__all__) == sorted(set(coresident.__all__), key=by_kind)


def test_every_exported_name_resolves_and_is_listed_by_dir() -> None:
    missing = [name for name in coresident.__all__ if getattr(coresident, name, None) is None]
    assert missing == []
    assert set(coresident.__all__) <= set(dir(coresident))


def test_every_exported_class_and_function_has_its_own_docstring() -> None:
    exported = {name: getattr(coresident, name) for name in coresident.__all__}
    callables = {name: it for name, it in exported.items() if inspect.isclass(it) or inspect.isroutine(it)}
    assert callables
    assert [name for name, it in callables.items() if not vars(it).get("__doc__", it.__doc__)] == []
    assert coresident.__doc__


def test_every_public_name_is_exported() -> None:
    public = {
        name
        for name, value in vars(coresident).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert public - set(coresident.__all__) == set()
