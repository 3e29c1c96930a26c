"""What a lab varies: combinations of policies and devices, each parameter with one value or a list of them.

A list is a run for each value, and two lists are a run for each pair. A parameter that is a list itself is written as
a list of lists. Everything is checked here: names, parameters and their ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import attrs

from ...policies.catalog import resolve
from ...runtime.backends.device_file import load_device
from ...runtime.config import Config, PoliciesConfig, PolicyConfig, on_device, structure
from ..opening import modelled
from .identity import digest_of
from .table import Table, naming, refusal

KINDS = tuple(attribute.name for attribute in attrs.fields(PoliciesConfig))
DEFAULT = "default model"
DEVICE_FIELDS = ("partition", "workspace", "yield_ms")
UNREAD = {("generation", "model"), ("decision", "heads")}


@attrs.frozen
class PolicyChoice:
    """A combination of policies; ``label`` is its name, with the parameters that the lab varies."""

    label: str
    policies: PoliciesConfig


@attrs.frozen
class DeviceChoice:
    """A device: a model by its shipped name or file, and the fields of a configuration's device that the lab sets.

    Without a ``model`` it is the default one, with the recorded partition and workspace. ``content`` is a digest of all
    that the model says.
    """

    label: str
    model: str = ""
    content: str = ""
    changes: Mapping[str, Any] = attrs.field(factory=dict)

    def under(self, config: Config) -> Config:
        """The configuration on this device. Partition and workspace come with the model unless the lab sets them."""
        config = on_device(config, self.model) if self.model else modelled(config)
        return attrs.evolve(config, device=attrs.evolve(config.device, **self.changes))


@attrs.frozen
class BaseChoice:
    """What the lab changes of each recording's configuration: by section, the fields; ``None`` is no such section."""

    sections: Mapping[str, Mapping[str, Any] | None] = attrs.field(factory=dict)

    def over(self, config: Config) -> Config:
        """The configuration with the changes. Raises ``ValueError`` when the two don't go together."""
        changed: dict[str, Any] = {}
        for section, fields in self.sections.items():
            before = getattr(config, section)
            if before is None:
                before = getattr(Config(), section)
            changed[section] = None if fields is None else attrs.evolve(before, **fields)
        return attrs.evolve(config, **changed)


def policy_choices(table: Table) -> Iterator[PolicyChoice]:
    """The combinations of ``[policies.NAME]``, in the order of the file. Raises ``InvalidRequest``."""
    for name, value in table.tables():
        yield from _combinations(name, Table(table.file, table.path(name), value))


def device_choices(table: Table) -> Iterator[DeviceChoice]:
    """The devices of the list ``devices``. Raises ``InvalidRequest``."""
    for key, value in table.items("devices"):
        yield from _devices(Table(table.file, key, {"model": value} if isinstance(value, str) else value))


def base_choice(table: Table) -> BaseChoice:
    """The tables ``generation``, ``decision`` and ``limits``, as in a configuration. Raises ``InvalidRequest``."""
    sections: dict[str, Mapping[str, Any] | None] = {}
    for section in ("generation", "decision", "limits"):
        if not table.has(section):
            continue
        value = table.take(section)
        if section == "decision" and value is False:
            sections[section] = None
            continue
        fields = Table(table.file, table.path(section), value)
        sections[section] = {key: _field(table.file, fields.path(key), section, key, v) for key, v in fields.tables()}
    return BaseChoice(sections)


def _field(file: str, path: str, section: str, key: str, value: Any) -> Any:
    """One field of a configuration, typed and in its range."""
    if (section, key) in UNREAD:
        raise refusal(file, path, value, "a modelled device has no weights to read; its figures come from devices")
    with naming(file, path, value):
        return getattr(getattr(structure({section: {key: value}}), section), key)


def _combinations(name: str, table: Table) -> Iterator[PolicyChoice]:
    spread = {kind: _policies(table, kind, table.take(kind)) for kind in KINDS if table.has(kind)}
    table.done()
    for picked in product(*spread.values()):
        chosen = dict(zip(spread, picked, strict=True))
        varied = _words({kind: words for kind, (_, words) in chosen.items()})
        policies = PoliciesConfig(**{kind: policy for kind, (policy, _) in chosen.items()})
        yield PolicyChoice(_label(name, varied), policies)


def _policies(table: Table, kind: str, value: Any) -> list[tuple[PolicyConfig, list[str]]]:
    """Every policy that a value stands for, with the words that tell it from the others."""
    path, entries = table.path(kind), [(value, list[str]())]
    if isinstance(value, Mapping):
        inner = value.get("parameters")
        if isinstance(inner, Mapping):
            entries = [({**value, "parameters": one}, words) for one, words in _products(table.file, path, inner)]
        else:
            entries = list(_products(table.file, path, value))
    found = []
    for entry, words in entries:
        with naming(table.file, path, entry):
            policy: PolicyConfig = getattr(structure({"policies": {kind: entry}}).policies, kind)
            resolve(kind, policy.name, **policy.parameters)  # type: ignore[call-overload]
        found.append((policy, words))
    return found


def _products(file: str, path: str, values: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Each combination of values that lists stand for, with ``key=value`` for those that come from a list."""
    lists = {key: value if isinstance(value, list) else [value] for key, value in values.items()}
    varied = [key for key, value in values.items() if isinstance(value, list)]
    for key in varied:
        if not values[key]:
            raise refusal(file, f"{path}.{key}", values[key], "a list of no values is no run at all; give some")
    for picked in product(*lists.values()):
        chosen = dict(zip(lists, picked, strict=True))
        yield chosen, [f"{key}={chosen[key]}" for key in varied]


def _devices(table: Table) -> Iterator[DeviceChoice]:
    name = table.text("name") if table.has("name") else ""
    values = {field: table.take(field) for field in ("model", *DEVICE_FIELDS) if table.has(field)}
    table.done()
    for chosen, words in _products(table.file, table.key, values):
        given = Table(table.file, table.key, chosen)
        model = given.text("model") if "model" in chosen else ""
        changes = {key: _field(table.file, table.path(key), "device", key, value) for key, value in given.tables()}
        label = name or model or DEFAULT
        yield _with_model(given, DeviceChoice(_label(label, words), changes=changes), model)


def _with_model(table: Table, choice: DeviceChoice, model: str) -> DeviceChoice:
    """A file of a device model is beside the lab."""
    if not model:
        return choice
    beside = Path(table.file).parent / Path(model).expanduser()
    found = str(beside.resolve()) if beside.is_file() else model
    with naming(table.file, table.path("model"), model):
        return attrs.evolve(choice, model=found, content=digest_of(repr(load_device(found))))


def _words(varied: Mapping[str, list[str]]) -> list[str]:
    """The parameters that a lab varies, with the kind of policy where two kinds have one of the same name."""
    names = [word.partition("=")[0] for words in varied.values() for word in words]
    return [
        word if names.count(word.partition("=")[0]) == 1 else f"{kind}.{word}"
        for kind, words in varied.items()
        for word in words
    ]


def _label(name: str, varied: list[str]) -> str:
    return f"{name} ({', '.join(varied)})" if varied else name


def unique(file: str, key: str, labels: list[str]) -> None:
    """Refuse two entries of one label: their results could not be told apart."""
    for label in labels:
        if labels.count(label) > 1:
            raise refusal(file, key, label, "this is there more than once; give each its own name")
