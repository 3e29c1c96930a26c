"""Device models from TOML files, and those that the package ships.

A file has ``schema = "coresident.device/1"``, ``label`` and ``source`` (where the figures come from: never left out),
and the tables ``[device]``, ``[model]``, ``[memory]`` and ``[times]`` with the keys of
:mod:`~coresident.runtime.backends.device_model`. A step time is one number (nanoseconds, constant), or a table with
``fixed_ns``, ``unit_ns`` and ``pair_ns`` (linear), or one with ``sizes``, ``contexts`` (left out: no matter),
``times_ns`` (a row for each size) and ``beyond`` (``"extend"`` or ``"hold"``). ``decision`` that is left out takes the
time of ``prefill``; ``save``, ``restore``, ``store`` and ``fetch`` that of ``copy``; ``warmup`` none.

Nothing else is read: unknown keys, and values that are negative, infinite, not a number or of another kind, are
refused with the file, the key and the value.
"""

from __future__ import annotations

import tomllib
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any

import attrs

from ...actors.errors import InvalidRequest
from . import devices
from .costs import FEMTO, Cost, Linear, Table
from .device_model import LONGEST_NS, DeviceModel, Memory, StepTimes
from .device_values import Section

SCHEMA = "coresident.device/1"
_STANDS_IN = {"decision": "prefill", "save": "copy", "restore": "copy", "store": "copy", "fetch": "copy"}
_LONGEST_UNIT_NS = 10**12
_LONGEST_PAIR_NS = 10**6


def shipped() -> tuple[str, ...]:
    """Names of the device models that come with the package."""
    names = (file.name for file in resources.files(devices).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load_device(reference: str | Path) -> DeviceModel:
    """A device model by its shipped name, or from a file: whatever ends in ``.toml`` or names a folder.

    Raises ``InvalidRequest`` naming the file, key and value.
    """
    name = str(reference)
    try:
        if name.endswith(".toml") or len(Path(name).parts) > 1:
            text = Path(name).read_text(encoding="utf-8")
        elif name in shipped():
            text = resources.files(devices).joinpath(f"{name}.toml").read_text(encoding="utf-8")
        else:
            raise InvalidRequest(
                f"device model {name!r} is none of {', '.join(shipped())}, and no path of a .toml file", device=name
            )
        data = tomllib.loads(text, parse_float=Decimal)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"device model {name}: {error}", file=name) from error
    return device_of(data, name)


def device_of(data: dict[str, Any], source: str = "device model") -> DeviceModel:
    """A device model from the data of a file. Raises ``InvalidRequest`` naming ``source``, key and value."""
    try:
        return _device(Section(data))
    except ValueError as error:
        raise InvalidRequest(f"{error} @ {source}", file=source) from error


def _device(root: Section) -> DeviceModel:
    schema = root.text("schema")
    if schema != SCHEMA:
        raise ValueError(f"schema is {schema!r}: {SCHEMA!r} is read")
    device, model = root.section("device"), root.section("model")
    label, source = root.text("label"), root.text("source")
    memory, times = _memory(root.section("memory")), _times(root.section("times"))
    root.check_rest()
    made = DeviceModel(
        label=label,
        source=source,
        partition=device.size("partition", least=1),
        workspace=device.size("workspace", least=1),
        context_limit=model.integer("context_limit", 1, 10**7),
        vocabulary=model.integer("vocabulary", 1, 2**31 - 1),
        memory=memory,
        times=times,
        segments=device.integer("segments", 1, 1000, default=1),
        gap_ns=device.integer("gap_ns", 0, _LONGEST_UNIT_NS, default=0),
        suspend=device.flag("suspend", default=True),
        windows=_windows(model),
        noise=float(device.number("noise", 1, default=0)),
    )
    device.check_rest()
    model.check_rest()
    return made


def _windows(model: Section) -> tuple[int | None, ...]:
    """One entry a layer; TOML has no null, so 0 is a layer that sees everything."""
    return tuple(window or None for window in model.integers("windows", default=()))


def _memory(section: Section) -> Memory:
    needed = {field.name for field in attrs.fields(Memory) if field.default is attrs.NOTHING}
    sizes = {
        field.name: section.size(field.name)
        for field in attrs.fields(Memory)
        if field.name in needed or field.name in section
    }
    section.check_rest()
    return Memory(**sizes)


def _times(section: Section) -> StepTimes:
    costs: dict[str, Cost] = {"warmup": Linear()}
    for field in attrs.fields(StepTimes):
        stand_in = _STANDS_IN.get(field.name)
        if field.name in section or (stand_in is None and field.name not in costs):
            costs[field.name] = _cost(section, field.name)
        elif stand_in is not None:
            costs[field.name] = costs[stand_in]
    section.check_rest()
    return StepTimes(**costs)


def _cost(times: Section, kind: str) -> Cost:
    if not times.is_table(kind):
        return Linear(_femto(times.number(kind, LONGEST_NS)))
    form = times.section(kind)
    cost: Cost
    if "sizes" in form:
        beyond = form.choice("beyond", ("extend", "hold"), default="extend")
        sizes, contexts = form.integers("sizes"), form.integers("contexts", default=(0,))
        try:
            cost = Table(sizes, contexts, _rows(form), beyond == "extend")
        except ValueError as error:
            raise ValueError(f"times.{kind}: {error}") from error
    else:
        cost = Linear(
            _femto(form.number("fixed_ns", LONGEST_NS, default=0)),
            _femto(form.number("unit_ns", _LONGEST_UNIT_NS, default=0)),
            _femto(form.number("pair_ns", _LONGEST_PAIR_NS, default=0)),
        )
    form.check_rest()
    return cost


def _rows(form: Section) -> tuple[tuple[int, ...], ...]:
    """A row of times for each size; of one context, plain numbers will do."""
    rows = form.grid("times_ns", LONGEST_NS)
    return tuple(tuple(round(value) for value in row) for row in rows)


def _femto(value: int | Decimal) -> int:
    return round(value * FEMTO)
