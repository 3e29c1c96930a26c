"""From a trace's header, or a configuration, to actors: the part that replays and simulations share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from ..actors.errors import TraceInvalid
from ..runtime.backends.catalog import Opened, open_backend, open_virtual
from ..runtime.config import Config
from ..runtime.host.assembly import GENERATION, Assembly, assemble
from .header import Header, config_of
from .statistics import TraceStatistics

MODELLED = "modelled"


def recorded_config(header: Header, trace: str | Path) -> tuple[Config, tuple[str, ...]]:
    """The configuration of a trace, and warnings about what its header cannot give back. Raises ``TraceInvalid``."""
    try:
        return config_of(header)
    except ValueError as error:
        raise TraceInvalid(f"trace {trace}, line 1: {error}", file=str(trace), line=1) from error


def modelled(config: Config) -> Config:
    """The same configuration on the modelled device."""
    return attrs.evolve(config, device=config.device.under(MODELLED))


def open_assembly(config: Config, seed: int = 0) -> tuple[Opened, Assembly]:
    """Everything before the device is touched.

    The modelled device is the one for virtual time: it does not sleep. ``seed`` draws its noise, if it has any.
    """
    opened = open_virtual(config, seed) if config.device.backend == MODELLED else open_backend(config)
    backend = opened.backend
    if config.generation.context > backend.describe(GENERATION).context_limit:
        # The recording's cap on a model with less: its own limit, as far as that goes.
        config = attrs.evolve(config, generation=attrs.evolve(config.generation, context=0))
    return opened, assemble(config, backend, opened.heads)


def special_tokens(opened: Opened) -> Mapping[str, Collection[int]]:
    """By model, the tokens that are not made up: they have meanings of their own."""
    kits = opened.kits.items()
    return {key: kit.tokenizer.special_tokens | kit.tokenizer.stop_tokens for key, kit in kits}


def differences(header: Header, assembly: Assembly) -> tuple[str, ...]:
    """Warnings about how the opened scheduler differs from the recorded one."""
    warnings = []
    for key, description in assembly.models.items():
        recorded = header.model(key)
        if recorded is not None and recorded.digest not in ("", description.digest):
            warnings.append(
                f"the {key} model is {description.label} ({description.digest[:12]}), "
                f"recorded was {recorded.label} ({recorded.digest[:12]})"
            )
    admitted = header.device.admitted_context
    if assembly.context < admitted:
        warnings.append(
            f"the admitted context is {assembly.context} tokens, recorded were {admitted}: longer ones are refused"
        )
    return tuple(warnings)


def left_out(recorded: TraceStatistics | None) -> tuple[str, ...]:
    """What was recorded and is not played again, as a warning."""
    files = sum(asked.requests for asked in recorded.checkpoints.values()) if recorded is not None else 0
    if not files:
        return ()
    return (f"{files} requests to store or fetch prefixes are left out: their files are no part of the trace",)
