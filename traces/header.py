"""The header of a trace: what ran the recording, in enough detail to open the same scheduler again.

It holds no paths: a model that was given as a path is known by its label and digest. A policy of the recording
user's own is named but never imported from a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import attrs

from ..runtime.config import (
    Bytes,
    Config,
    DecisionConfig,
    DeviceConfig,
    GenerationConfig,
    LimitsConfig,
    PoliciesConfig,
    PolicyConfig,
    VerbalizerConfig,
)
from ..runtime.host.assembly import DECISION, GENERATION, Assembly
from ..runtime.host.building import Facts
from ..runtime.models.locate import PACKAGES, SYNTHETIC
from .fields import one_of
from .format import SCHEMA, VERSION

BLOCK = 64
LEVELS = ("counts", "tokens")
SCOPES = ("trace", "source")
_NAMED = ("", SYNTHETIC, *PACKAGES)
# Kinds of policy that earlier headers of this version do not have: such a recording ran without them.
_ADDED = {"preparation"}


@attrs.frozen
class ModelHeader:
    """A resident model. ``name`` is how the configuration named it; empty for a path."""

    key: str
    roles: tuple[str, ...]
    label: str
    digest: str
    vocabulary: int
    name: str = ""


@attrs.frozen
class DeviceHeader:
    """The device: bytes of its partition and workspace budget, and the admitted context in tokens."""

    backend: str
    partition: int
    workspace: int
    yield_ms: int
    admitted_context: int


@attrs.frozen
class GenerationHeader:
    """The generation model's share of the configuration."""

    context: int
    sequences: int
    chunk: int
    retained: int
    reuse: str


@attrs.frozen
class DecisionHeader:
    """The decision model's share; ``heads`` maps names to kinds."""

    shares_weights: bool
    context: int
    rows_per_slice: int
    max_rows: int
    heads: Mapping[str, str]


@attrs.frozen
class PolicyHeader:
    """A policy by name, with its parameters."""

    name: str
    parameters: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class LimitsHeader:
    """Bounds of queues, and how often the supervisor recovers by itself."""

    requests: int
    decisions: int
    mailbox: int
    restarts: int = 0
    restart_seconds: int = 60


@attrs.frozen
class Header:
    """Line 1. Times are integer nanoseconds, blocks have ``block_size`` tokens.

    Blocks are numbered within this trace in order of first appearance (scope ``trace``), or have numbers made from
    what an imported trace's source calls them (scope ``source``). ``imported`` names the format of that source.
    ``ends`` is false where the source does not tell how requests ended: then requests have ascending ids, and only one
    that failed has an end, right behind its arrival. ``facts`` are what the actors were told of the models; with them
    the trace has a ``took`` line for every message, and can be audited.
    ``content`` is ``counts`` or ``tokens`` (then events carry token ids too). ``seed`` starts the tokens that a
    replay makes up for blocks. ``recorded_by`` is the library's version.
    """

    schema: str = attrs.field(validator=one_of((SCHEMA,)))
    version: int
    time_unit: str = attrs.field(validator=one_of(("ns",)))
    block_size: int
    block_scope: str = attrs.field(validator=one_of(SCOPES))
    content: str = attrs.field(validator=one_of(LEVELS))
    seed: int
    recorded_by: str
    models: tuple[ModelHeader, ...]
    device: DeviceHeader
    generation: GenerationHeader
    decision: DecisionHeader | None
    policies: Mapping[str, PolicyHeader]
    limits: LimitsHeader
    imported: str = ""
    ends: bool = True
    facts: Facts | None = None

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.block_size <= 65_536:
            raise ValueError(f"block_size is {self.block_size}: 1 to 65536 tokens are read")
        kinds = {attribute.name for attribute in attrs.fields(PoliciesConfig)}
        if not kinds - _ADDED <= set(self.policies) <= kinds:
            raise ValueError(
                f"policies name {', '.join(self.policies) or 'nothing'}: needed are {', '.join(sorted(kinds))}"
            )
        if GENERATION not in {model.key for model in self.models}:
            raise ValueError(f"models have no {GENERATION!r}")

    def model(self, key: str) -> ModelHeader | None:
        """The model of a key, if the recording had it."""
        return next((model for model in self.models if model.key == key), None)


def header_of(assembly: Assembly, content: str = "counts", seed: int = 0, messages: bool = True) -> Header:
    """The header of a run of this assembly, recorded with its ``messages`` or without."""
    config = assembly.config
    policies = {name: PolicyHeader(p.name, _plain(p.parameters)) for name, p in _policies(config.policies).items()}
    return Header(
        schema=SCHEMA,
        version=VERSION,
        time_unit="ns",
        block_size=BLOCK,
        block_scope="trace",
        content=content,
        seed=seed,
        recorded_by=version("coresident"),
        models=tuple(_model(assembly, key) for key in assembly.models),
        device=DeviceHeader(
            backend=assembly.backend.name,
            partition=config.device.partition,
            workspace=config.device.workspace,
            yield_ms=config.device.yield_ms,
            admitted_context=assembly.context,
        ),
        generation=GenerationHeader(
            context=config.generation.context,
            sequences=config.generation.sequences,
            chunk=config.generation.chunk,
            retained=config.generation.retained,
            reuse=config.generation.reuse,
        ),
        decision=_decision(assembly),
        policies=policies,
        limits=LimitsHeader(**attrs.asdict(config.limits)),
        facts=assembly.facts if messages else None,
    )


def config_of(header: Header) -> tuple[Config, tuple[str, ...]]:
    """The configuration that a header describes, and warnings about what it cannot give back.

    Raises ``ValueError`` when a value is outside what the configuration takes.
    """
    warnings: list[str] = []
    policies = {}
    for kind, policy in header.policies.items():
        if ":" in policy.name:
            warnings.append(
                f"{kind} policy {policy.name} of the recording is its user's own: the default stands in for it"
            )
        else:
            policies[kind] = PolicyConfig(policy.name, dict(policy.parameters))
    generation, device = header.generation, header.device
    model = header.model(GENERATION)
    config = Config(
        device=DeviceConfig(
            backend=device.backend,
            partition=Bytes(device.partition),
            workspace=Bytes(device.workspace),
            yield_ms=device.yield_ms,
        ),
        generation=GenerationConfig(
            model=model.name if model else "",
            context=generation.context,
            sequences=generation.sequences,
            chunk=generation.chunk,
            retained=Bytes(generation.retained),
            reuse=generation.reuse,
        ),
        decision=_decision_config(header),
        policies=PoliciesConfig(**policies),
        limits=LimitsConfig(**attrs.asdict(header.limits)),
    )
    return config, tuple(warnings)


def _policies(policies: PoliciesConfig) -> dict[str, PolicyConfig]:
    return {attribute.name: getattr(policies, attribute.name) for attribute in attrs.fields(PoliciesConfig)}


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them; a user's own policy may take objects, which are shown."""
    return {key: value if isinstance(value, int | float | str) else repr(value) for key, value in parameters.items()}


def _model(assembly: Assembly, key: str) -> ModelHeader:
    config, description = assembly.config, assembly.models[key]
    roles = [GENERATION] if key == GENERATION else []
    if key == assembly.decision_model:
        roles.append(DECISION)
    named = config.generation.model if key == GENERATION or config.decision is None else config.decision.model
    return ModelHeader(
        key=key,
        roles=tuple(roles),
        label=description.label,
        digest=description.digest,
        vocabulary=description.vocabulary,
        name=named if named in _NAMED else "",
    )


def _decision(assembly: Assembly) -> DecisionHeader | None:
    config = assembly.config.decision
    if config is None:
        return None
    return DecisionHeader(
        config.shares_weights, config.context, config.rows_per_slice, config.max_rows, dict(assembly.heads)
    )


def _decision_config(header: Header) -> DecisionConfig | None:
    """Heads come back as verbalizers of the same names and kinds: they cost the same, and score otherwise."""
    decision = header.decision
    if decision is None:
        return None
    model = header.model(DECISION)
    return DecisionConfig(
        model="same" if decision.shares_weights else (model.name if model else "") or SYNTHETIC,
        context=decision.context,
        rows_per_slice=decision.rows_per_slice,
        max_rows=decision.max_rows,
        verbalizers=tuple(VerbalizerConfig(name, kind) for name, kind in decision.heads.items()),
    )
