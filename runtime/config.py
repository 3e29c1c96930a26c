"""Configuration as data: attrs classes, or the same keys in one TOML file.

Sizes are integer bytes inside; in TOML they may also be strings with a unit (``"512 MiB"``, ``"2 GB"``). A policy is a
name, or a table with a name and its parameters. Every error names the file, the key and the value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import cattrs
from attrs import validators

from ..actors.errors import InvalidRequest
from .backends.device_file import load_device
from .config_checks import at_least, positive
from .config_device import ESTIMATED, MODELLED, DeviceConfig
from .config_store import HostConfig, StoreConfig
from .config_worker import DriverConfig
from .sizes import GIB, MIB, Bytes, parse_bytes
from .structuring import check_table, faults_in, strict_converter

__all__ = [
    "DEFAULT_VERBALIZERS",
    "ESTIMATED",
    "GIB",
    "MIB",
    "MODELLED",
    "Bytes",
    "Config",
    "DecisionConfig",
    "DeviceConfig",
    "DriverConfig",
    "GenerationConfig",
    "HostConfig",
    "LimitsConfig",
    "PoliciesConfig",
    "PolicyConfig",
    "StoreConfig",
    "VerbalizerConfig",
    "load_config",
    "on_device",
    "parse_bytes",
    "structure",
]


def _words(least: int) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    def check(_: Any, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
        if len(value) < least or not all(value):
            raise ValueError(f"{attribute.name} is {list(value)}: it needs at least {least} words, none of them empty")

    return check


@attrs.frozen
class GenerationConfig:
    """The generation model and what it holds.

    ``model`` is a path, ``store:NAME``, ``smollm2`` or ``synthetic``; empty takes ``CORESIDENT_MODEL``, and the
    synthetic checkpoint when that is not set. ``context`` caps the KV context in tokens; 0 is the model's own limit.
    ``sequences`` are KV slots, ``chunk`` the prefill chunk, ``retained`` the bytes for retained prefixes. ``reuse``:
    ``exact`` reuses every matched token, ``grid`` only whole chunks (bit-identical logits to a cold run).
    """

    model: str = ""
    context: int = attrs.field(default=0, validator=at_least(0))
    sequences: int = attrs.field(default=2, validator=positive)
    chunk: int = attrs.field(default=256, validator=positive)
    retained: Bytes = attrs.field(default=Bytes(256 * MIB), validator=at_least(0))
    reuse: str = attrs.field(default="exact", validator=validators.in_(("exact", "grid")))


@attrs.frozen
class VerbalizerConfig:
    """A head that compares the logits of words: the first token of each string counts."""

    name: str
    kind: str = attrs.field(default="probability", validator=validators.in_(("rank", "probability", "choice")))
    positive: tuple[str, ...] = attrs.field(default=("Yes", "yes", " Yes", " yes"), validator=_words(1))
    negative: tuple[str, ...] = attrs.field(default=("No", "no", " No", " no"), validator=_words(0))


DEFAULT_VERBALIZERS = (
    VerbalizerConfig("rank", "rank"),
    VerbalizerConfig("probability", "probability"),
    VerbalizerConfig("choice", "choice"),
)


def _named(_: Any, attribute: attrs.Attribute[Any], value: str) -> None:
    if not value:
        raise ValueError(f"{attribute.name} is empty: name a model, or 'same' for the generation model's weights")


@attrs.frozen
class DecisionConfig:
    """The decision model. ``same`` shares the generation model's weights, charged once.

    ``context`` bounds instruction and row together, in tokens; ``rows_per_slice`` rows run under one charge; ``heads``
    is a safetensors file of linear heads.
    """

    model: str = attrs.field(default="same", validator=_named)
    context: int = attrs.field(default=1024, validator=positive)
    rows_per_slice: int = attrs.field(default=2, validator=positive)
    max_rows: int = attrs.field(default=64, validator=positive)
    heads: str = ""
    verbalizers: tuple[VerbalizerConfig, ...] = DEFAULT_VERBALIZERS

    def __attrs_post_init__(self) -> None:
        names = [head.name for head in self.verbalizers]
        if len(set(names)) < len(names):
            raise ValueError(f"verbalizers have the names {', '.join(names)}: give each its own")
        if not names and not self.heads:
            raise ValueError("there are no heads: name a file of them, keep the verbalizers, or have no decision model")

    @property
    def shares_weights(self) -> bool:
        return self.model == "same"


@attrs.frozen
class PolicyConfig:
    """A policy by name, or ``module:attribute``, with its parameters."""

    name: str
    parameters: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class PoliciesConfig:
    """The policies of every kind."""

    ordering: PolicyConfig = PolicyConfig("strict")
    quantum: PolicyConfig = PolicyConfig("fixed")
    retention: PolicyConfig = PolicyConfig("lru")
    abstention: PolicyConfig = PolicyConfig("deadline")
    preparation: PolicyConfig = PolicyConfig("idle")


@attrs.frozen
class LimitsConfig:
    """Bounds of queues: open generation requests, open decisions, and messages waiting in one mailbox.

    ``restarts`` is how often, within ``restart_seconds``, a lost device is recovered without being asked; requests that
    have shown nothing are then run again. With 0 they fail, and a person or the application retries or repairs.
    """

    requests: int = attrs.field(default=64, validator=positive)
    decisions: int = attrs.field(default=64, validator=positive)
    mailbox: int = attrs.field(default=1024, validator=positive)
    restarts: int = attrs.field(default=0, validator=at_least(0))
    restart_seconds: int = attrs.field(default=60, validator=positive)


@attrs.frozen
class Config:
    """Everything a scheduler is opened with. ``decision`` may be ``None`` (``false`` in TOML): no decision model."""

    device: DeviceConfig = attrs.field(factory=DeviceConfig)
    generation: GenerationConfig = GenerationConfig()
    decision: DecisionConfig | None = DecisionConfig()
    policies: PoliciesConfig = PoliciesConfig()
    limits: LimitsConfig = LimitsConfig()
    store: StoreConfig = attrs.field(factory=StoreConfig)
    host: HostConfig = attrs.field(factory=HostConfig)


def on_device(config: Config, model: str) -> Config:
    """The same configuration on another device: the modelled one of a name or file, with its partition and workspace.

    A context cap that is more than the model's limit becomes that limit. Raises ``InvalidRequest`` for no such model.
    """
    device = load_device(model)
    partition, workspace = Bytes(device.partition), Bytes(device.workspace)
    moved = attrs.evolve(config.device.under(MODELLED), model=model, partition=partition, workspace=workspace)
    context = min(config.generation.context, device.context_limit)
    return attrs.evolve(config, device=moved, generation=attrs.evolve(config.generation, context=context))


def load_config(path: str | Path) -> Config:
    """Read a TOML file. Raises ``InvalidRequest`` naming the file, key and value."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"configuration {path}: {error}", file=str(path)) from error
    return structure(data, str(path))


def structure(data: Mapping[str, Any], source: str = "configuration") -> Config:
    """A configuration from plain data. Raises ``InvalidRequest`` naming the source, key and value."""
    try:
        check_table(data)
        return _converter().structure(data, Config)
    except ValueError as error:
        raise InvalidRequest(f"{error} @ {source}", file=source) from error
    except cattrs.BaseValidationError as error:
        raise InvalidRequest(faults_in(error, source), file=source) from error


def _converter() -> cattrs.Converter:
    converter = strict_converter()
    table: Callable[[Any, Any], PolicyConfig] = converter.get_structure_hook(PolicyConfig)

    def policy(value: Any, cls: type[PolicyConfig]) -> PolicyConfig:
        if isinstance(value, str):
            return PolicyConfig(value)
        if isinstance(value, Mapping) and "parameters" not in value:
            known = {"name": value["name"]} if "name" in value else {}
            value = {**known, "parameters": {key: item for key, item in value.items() if key != "name"}}
        return table(value, cls)

    decision = converter.get_structure_hook(DecisionConfig)

    def maybe_decision(value: Any, _: Any) -> DecisionConfig | None:
        found: DecisionConfig | None = None if value is None or value is False else decision(value, DecisionConfig)
        return found

    converter.register_structure_hook(PolicyConfig, policy)
    converter.register_structure_hook(DecisionConfig | None, maybe_decision)
    return converter
