"""A lab file: which traces, policies, devices and seeds are simulated, each with each.

Keys of the file::

    seeds = [0, 1]                      # of made-up token ids and of the device model's noise; 0 when left out
    record = false                      # true: every run writes its trace, for a report
    traces = ["chat", "day.jsonl"]      # a file beside the lab, or a shipped sample; or tables, as here:

    [[traces]]
    file = "day.jsonl"
    limit = 1000                        # only the first requests
    name = "morning"                    # what results call it; the file's name when left out

    [policies.aging]                    # any number of combinations; kinds left out are the defaults
    ordering = {name = "aging", rate = [1.0, 4.0]}
    quantum = "timed"

    [[devices]]                         # or names: devices = ["..."]; the default model when left out, which is not
                                        # the recorded device: "coresident calibrate" makes a model of that
    model = "..."                       # a shipped device model or a TOML file
    partition = ["8 GiB", "16 GiB"]     # and other fields of a configuration's device

    [generation]                        # generation, decision and limits as in a configuration file: what is given
    retained = "512 MiB"                # replaces what the trace was recorded with

    [output]
    folder = "results"                  # beside the lab; the lab's name with "-results" when left out
    format = "csv"                      # or "parquet"

Anything else in it is an error.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import attrs

from ...actors.errors import InvalidRequest
from ...runtime.config import PoliciesConfig
from .choices import (
    DEFAULT,
    BaseChoice,
    DeviceChoice,
    PolicyChoice,
    base_choice,
    device_choices,
    policy_choices,
    unique,
)
from .table import Table, refusal, whole

FORMATS = ("csv", "parquet")


@attrs.frozen
class TraceChoice:
    """A trace to simulate: what results call it, its file, and the most requests of it."""

    name: str
    path: Path
    limit: int | None = None


@attrs.frozen
class Lab:
    """What a lab file asks for, checked. ``folder`` holds the results, ``format`` is that of their table."""

    file: Path
    traces: tuple[TraceChoice, ...]
    policies: tuple[PolicyChoice, ...]
    devices: tuple[DeviceChoice, ...]
    seeds: tuple[int, ...]
    base: BaseChoice
    folder: Path
    format: str
    record: bool


def samples() -> dict[str, Path]:
    """The shipped traces by name."""
    folder = Path(str(resources.files(__package__.rpartition(".")[0]).joinpath("samples")))
    return {path.stem: path for path in sorted(folder.glob("*.jsonl"))}


def load_lab(path: str | Path) -> Lab:
    """Read a lab file. Raises ``InvalidRequest`` naming the file, key and value."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"lab {path}: {error.strerror or error}", file=str(path)) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"lab {path}: {error}", file=str(path)) from error
    return structure_lab(data, Path(path))


def structure_lab(data: Any, path: Path) -> Lab:
    """A lab from plain data, as if ``path`` were its file."""
    file = str(path)
    root = Table(file, "", data)
    lab = Lab(
        file=path,
        traces=_traces(root, path.parent),
        policies=_policies(root),
        devices=tuple(device_choices(root)) or (DeviceChoice(DEFAULT),),
        seeds=tuple(whole(file, key, value, 0) for key, value in root.items("seeds")) or (0,),
        base=base_choice(root),
        record=root.flag("record"),
        **_output(root, path),
    )
    root.done()
    unique(file, "traces", [trace.name for trace in lab.traces])
    unique(file, "policies", [policy.label for policy in lab.policies])
    unique(file, "devices", [device.label for device in lab.devices])
    unique(file, "seeds", [str(seed) for seed in lab.seeds])
    return lab


def _traces(root: Table, folder: Path) -> tuple[TraceChoice, ...]:
    found = []
    for key, value in root.items("traces"):
        entry = Table(root.file, key, {"file": value} if isinstance(value, str) else value)
        path = _found(entry, entry.text("file"), folder)
        found.append(TraceChoice(entry.text("name", path.stem), path, entry.whole("limit", 1)))
        entry.done()
    if not found:
        raise refusal(root.file, "traces", [], f"name at least one trace: a file, or one of {', '.join(samples())}")
    return tuple(found)


def _found(entry: Table, name: str, folder: Path) -> Path:
    path = folder / Path(name).expanduser()
    if path.is_file():
        return path
    if name in samples():
        return samples()[name]
    valid = f"there is no file {path}, and no shipped trace of this name; shipped are {', '.join(samples())}"
    raise refusal(entry.file, entry.path("file"), name, valid)


def _policies(root: Table) -> tuple[PolicyChoice, ...]:
    table = Table(root.file, "policies", root.take("policies", {}))
    return tuple(policy_choices(table)) or (PolicyChoice("default", PoliciesConfig()),)


def _output(root: Table, path: Path) -> dict[str, Any]:
    table = Table(root.file, "output", root.take("output", {}))
    folder, form = table.text("folder", f"{path.stem}-results"), table.text("format", "csv")
    table.done()
    if form not in FORMATS:
        raise refusal(root.file, "output.format", form, f"formats are {' and '.join(FORMATS)}")
    return {"folder": path.parent / Path(folder).expanduser(), "format": form}
