"""Backends by name, opened from a configuration; heavy ones are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from ...actors.errors import InvalidRequest
from ..config import Config, VerbalizerConfig
from ..models.heads import HeadFile, HeadSpec, VerbalizerHead
from ..models.locate import ModelSource, find_model
from ..models.text import TextKit
from ..models.tokenizer import AnyTokenizer
from .contract import Backend
from .device_file import load_device
from .modelled import ModelledBackend, SleepingBackend
from .verifying import verifying

if TYPE_CHECKING:
    from .mlx.backend import MlxBackend
    from .reference import ReferenceBackend
    from .vulkan.backend import VulkanBackend
    from .vulkan.survey import Survey

NAMES = ("reference", "mlx", "vulkan", "modelled")


@attrs.frozen
class Opened:
    """A backend that knows its models, their text sides by model key, and the kinds of the decision model's heads."""

    backend: Backend
    kits: Mapping[str, TextKit]
    heads: Mapping[str, str]


@attrs.frozen
class Availability:
    """Whether a backend can be used here, and what to do when not."""

    name: str
    available: bool
    note: str


def availability(vulkan: Survey) -> tuple[Availability, ...]:
    """Every backend name and its state on this machine; imports nothing heavy. ``vulkan`` is what was found of it."""
    return (
        Availability("reference", True, "NumPy on the CPU, the embedded default"),
        _mlx_here(),
        Availability("vulkan", vulkan.chosen is not None, vulkan.note),
        Availability("modelled", True, "a cost model; computes nothing"),
    )


def _mlx_here() -> Availability:
    from .mlx.library import INSTALL, missing

    lacking = " and ".join(name.replace("_", "-") for name in missing())
    if lacking:
        return Availability("mlx", False, f"{lacking} not installed: {INSTALL}")
    return Availability("mlx", True, "MLX with mlx-lm's models, on Apple's GPU; elsewhere on the CPU, which is slow")


def open_backend(config: Config) -> Opened:
    """The backend of a configuration, with nothing loaded yet.

    Raises ``InvalidRequest`` for an unknown backend or a head without meaning, ``ArtifactInvalid`` for a damaged model.
    """
    name = config.device.backend
    if name == "reference":
        return _reference(config)
    if name == "mlx":
        return _mlx(config)
    if name == "vulkan":
        return _vulkan(config)
    if name == "modelled":
        return _modelled(config, SleepingBackend)
    raise InvalidRequest(f"device.backend is {name!r}: this version has {', '.join(NAMES)}", backend=name)


def open_virtual(config: Config, seed: int = 0) -> Opened:
    """The modelled device of a configuration for a virtual clock; ``seed`` draws its noise, if it has any.

    Raises ``InvalidRequest`` for another backend, and for a device model that isn't one.
    """
    name = config.device.backend
    if name != "modelled":
        raise InvalidRequest(f"device.backend is {name!r}: virtual time needs 'modelled'", backend=name)
    return _modelled(config, ModelledBackend, seed)


def _reference(config: Config) -> Opened:
    from .reference import ReferenceBackend

    sources = model_sources(config)
    return _with_text(config, ReferenceBackend(sources, threads=config.device.threads or None), sources)


def _mlx(config: Config) -> Opened:
    from .mlx.library import require

    require()
    from .mlx.backend import MlxBackend
    from .mlx.limits import MemoryPolicy
    from .mlx.planning import check_partition, device_limits

    check_partition(config.device.partition, device_limits())
    sources = model_sources(config)
    policy = MemoryPolicy(config.device.partition, config.device.workspace)
    return _with_text(config, MlxBackend(sources, margin=config.device.margin, policy=policy), sources)


def _vulkan(config: Config) -> Opened:
    from .vulkan.configured import open_vulkan

    sources = model_sources(config)
    return _with_text(config, open_vulkan(sources, config.device), sources)


def _with_text(
    config: Config, backend: ReferenceBackend | MlxBackend | VulkanBackend, sources: Mapping[str, ModelSource]
) -> Opened:
    """A backend that computes, with its models' text sides, and with the heads that the configuration asks for."""
    kits = {key: TextKit.of(source, backend.describe(key).digest) for key, source in sources.items()}
    if config.decision is None:
        return Opened(verifying(backend, sources), kits, {})
    key = "generation" if config.decision.shares_weights else "decision"
    backend.add_heads(key, decision_heads(config, kits[key].tokenizer))
    return Opened(verifying(backend, sources), kits, backend.head_kinds(key))


def model_sources(config: Config) -> dict[str, ModelSource]:
    """Where the models of a configuration are, by key.

    Raises ``ArtifactInvalid`` for one that is not there, or that nothing is selected for in the store.
    """
    device = config.device.backend
    sources = {"generation": find_model(config.generation.model or None, store=config.store, device=device)}
    if config.decision is not None and not config.decision.shares_weights:
        sources["decision"] = find_model(config.decision.model, store=config.store, device=device)
    return sources


def _modelled(config: Config, kind: type[ModelledBackend], seed: int = 0) -> Opened:
    verbalizers = config.decision.verbalizers if config.decision else ()
    heads = {head.name: head.kind for head in verbalizers}
    device = load_device(config.device.model) if config.device.model else None
    backend = kind(device, tuple(heads), seed)
    keys = ["generation"]
    if config.decision is not None and not config.decision.shares_weights:
        keys.append("decision")
    synthetic = ModelSource()
    kits = {key: TextKit.of(synthetic, backend.describe(key).digest) for key in keys}
    return Opened(backend, kits, heads)


def decision_heads(config: Config, tokenizer: AnyTokenizer) -> tuple[HeadSpec, ...]:
    """The heads a configuration asks for: a file of linear heads, and verbalizers over the model's own tokens."""
    if config.decision is None:
        return ()
    linear: tuple[HeadSpec, ...] = (HeadFile(config.decision.heads),) if config.decision.heads else ()
    return linear + tuple(_verbalizer(head, tokenizer) for head in config.decision.verbalizers)


def _verbalizer(head: VerbalizerConfig, tokenizer: AnyTokenizer) -> VerbalizerHead:
    """First tokens of the words; a token that begins words of both sides tells nothing and is left out."""
    positive = {tokens[0] for word in head.positive if (tokens := tokenizer.encode(word, special=False))}
    negative = {tokens[0] for word in head.negative if (tokens := tokenizer.encode(word, special=False))}
    both = positive & negative
    if not positive - both or (head.negative and not negative - both):
        raise InvalidRequest(
            f"decision head {head.name}: {list(head.positive)} and {list(head.negative)} begin with the same tokens; "
            "choose words that differ in their first token",
            head=head.name,
        )
    return VerbalizerHead(head.name, head.kind, tuple(sorted(positive - both)), tuple(sorted(negative - both)))
