"""Options that several commands share, and the configuration that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import attrs
import typer

from ..actors.errors import InvalidRequest
from ..policies.catalog import ORDERING
from ..runtime.config import (
    Config,
    DeviceConfig,
    GenerationConfig,
    PoliciesConfig,
    PolicyConfig,
    load_config,
    parse_bytes,
)
from .failures import Terminal

_Section = TypeVar("_Section", DeviceConfig, GenerationConfig, PoliciesConfig)


def _remember_json(context: typer.Context, asked: bool) -> bool:
    context.ensure_object(Terminal).as_json = asked
    return asked


AsJson = Annotated[bool, typer.Option("--json", callback=_remember_json, help="One JSON object on stdout.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML configuration.")]
Model = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="A GGUF file, a Hugging Face folder, 'store:NAME', 'smollm2' or 'synthetic'."),
]
Backend = Annotated[str | None, typer.Option(metavar="NAME", help="What executes; see 'coresident devices'.")]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Ordering: {', '.join(ORDERING)}, or your own as module:attribute (see 'coresident demo --help').",
    ),
]
Record = Annotated[Path | None, typer.Option(metavar="OUT", help="Write a trace of the run to this file.")]
Context = Annotated[int | None, typer.Option(metavar="TOKENS", help="Cap of the KV context; 0 is the model's own.")]
Partition = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory to use, such as '2 GiB'.")]
Workspace = Annotated[str | None, typer.Option(metavar="SIZE", help="Its part for the steps' transient buffers.")]
Retained = Annotated[str | None, typer.Option(metavar="SIZE", help="Its part for retained prefixes.")]
Sequences = Annotated[int | None, typer.Option(metavar="N", help="Generations at a time, one KV slot each.")]
Chunk = Annotated[int | None, typer.Option(metavar="TOKENS", help="Prompt tokens in one prefill step.")]


def configured(
    file: Path | None,
    default: Config | None = None,
    *,
    model: str | None = None,
    backend: str | None = None,
    policy: str | None = None,
    context: int | None = None,
    partition: str | None = None,
    workspace: str | None = None,
    retained: str | None = None,
    sequences: int | None = None,
    chunk: int | None = None,
) -> Config:
    """The file's configuration, or the default, with the options that were given in place of its values.

    Raises:
        InvalidRequest: naming the file and key, or the option, and the value.
    """
    config = (default or Config()) if file is None else load_config(file)
    sizes = {name: _size(name, text) for name, text in (("partition", partition), ("workspace", workspace))}
    generation = {"model": model, "context": context, "sequences": sequences, "chunk": chunk}
    ordering = None if policy is None else PolicyConfig(policy)
    return attrs.evolve(
        config,
        device=_changed(config.device, {"backend": backend, **sizes}),
        generation=_changed(config.generation, {**generation, "retained": _size("retained", retained)}),
        policies=_changed(config.policies, {"ordering": ordering}),
    )


def _size(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(int(text) if text.strip().isdecimal() else text)
    except ValueError as error:
        raise InvalidRequest(f"--{name}: {error}", option=f"--{name}", value=text) from None


def _changed(section: _Section, values: dict[str, Any]) -> _Section:
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return attrs.evolve(section, **given)
    except ValueError as error:
        raise InvalidRequest(f"--{error.args[0]}", options=sorted(given)) from None
