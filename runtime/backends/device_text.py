"""Device models written as the TOML that ``device_file`` reads: what is read back is equal, to the femtosecond."""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs

from .costs import FEMTO, Cost, Linear, Table
from .device_file import SCHEMA
from .device_model import DeviceModel, Memory, StepTimes


def device_text(device: DeviceModel) -> str:
    """The file of a device model."""
    return "\n".join([*_head(device), *_memory(device.memory), *_times(device.times)]) + "\n"


def _head(device: DeviceModel) -> Iterator[str]:
    yield f'schema = "{SCHEMA}"'
    yield f"label = {_text(device.label)}"
    yield f"source = {_text(device.source)}"
    yield "\n[device]"
    yield f"partition = {device.partition}"
    yield f"workspace = {device.workspace}"
    yield f"segments = {device.segments}"
    yield f"gap_ns = {device.gap_ns}"
    yield f"suspend = {str(device.suspend).lower()}"
    yield f"noise = {device.noise!r}"
    yield "\n[model]"
    yield f"context_limit = {device.context_limit}"
    yield f"vocabulary = {device.vocabulary}"
    yield f"windows = {[window or 0 for window in device.windows]}"


def _memory(memory: Memory) -> Iterator[str]:
    yield "\n[memory]"
    for field in attrs.fields(Memory):
        value = getattr(memory, field.name)
        if value is not None:
            yield f"{field.name} = {value}"


def _times(times: StepTimes) -> Iterator[str]:
    yield "\n[times]"
    for field in attrs.fields(StepTimes):
        yield f"{field.name} = {_cost(getattr(times, field.name))}"


def _cost(cost: Cost) -> str:
    if isinstance(cost, Table):
        beyond = "extend" if cost.extend else "hold"
        rows = [list(row) for row in cost.times]
        return (
            f"{{ sizes = {list(cost.sizes)}, contexts = {list(cost.contexts)}, times_ns = {rows}, "
            f'beyond = "{beyond}" }}'
        )
    if isinstance(cost, Linear):
        return f"{{ fixed_ns = {_ns(cost.fixed)}, unit_ns = {_ns(cost.unit)}, pair_ns = {_ns(cost.pair)} }}"
    raise TypeError(f"{type(cost).__name__} is no form of step time that a file has")


def _ns(femto: int) -> str:
    """Nanoseconds as a decimal number, exactly."""
    whole, part = divmod(femto, FEMTO)
    return f"{whole}.{part:06d}".rstrip("0").removesuffix(".")


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's too, but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
