"""From a lab to its runs: each trace with each policy, device and seed, all files read and everything resolved.

A run's id is a digest of all that determines its result: the content of the trace, the whole configuration, the
content of the device model, the seed, the user's own policies and the library. What things are called and where
files lie is no part of it, so two entries of a lab that come to the same are one run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import attrs

from ...actors.errors import InvalidRequest
from ...runtime.config import Config
from ..opening import recorded_config
from ..reader import TraceReader
from .choices import DeviceChoice
from .file import Lab, TraceChoice
from .identity import digest_of, file_digest, library, own_code
from .table import naming

ID_LENGTH = 20
_SHORT_ID = 8
_LONGEST_NAME = 160
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@attrs.frozen
class Run:
    """One simulation, ready to be carried out anywhere that has its files.

    ``trace``, ``policy`` and ``device`` are what results call them. ``content`` is the SHA-256 of the trace's file,
    ``code`` that of the user's own modules; ``library`` says which library it was planned with. ``backend`` is what
    the trace was recorded on.
    """

    id: str
    trace: str
    policy: str
    device: str
    seed: int
    path: Path
    limit: int | None
    config: Config
    content: str
    library: str
    code: dict[str, str]
    backend: str
    record: Path | None = None

    @property
    def label(self) -> str:
        """The run in words."""
        return f"{self.trace}, {self.policy}, {self.device}, seed {self.seed}"


def plan(lab: Lab) -> tuple[Run, ...]:
    """All runs of a lab, in the order of its file: by trace, device, policy and seed.

    Raises ``InvalidRequest`` for a trace that can't be read, naming it.
    """
    runs = [run for trace in lab.traces for run in _runs(lab, trace)]
    if not lab.record:
        return tuple(runs)
    # Runs that are the same have one file, named by the first of them.
    files = {run.id: (lab.folder / "traces" / _file_name(run)).resolve() for run in reversed(runs)}
    return tuple(attrs.evolve(run, record=files[run.id]) for run in runs)


def _file_name(run: Run) -> str:
    """A name for a run's trace that says what it is; the short id makes it the run's own."""
    words = (_NOT_IN_NAMES.sub("_", word).strip("._") for word in (run.trace, run.policy, run.device, str(run.seed)))
    return f"{'-'.join(words)[:_LONGEST_NAME]}-{run.id[:_SHORT_ID]}.jsonl"


def _runs(lab: Lab, trace: TraceChoice) -> Iterator[Run]:
    with naming(str(lab.file), "traces", trace.name):
        try:
            with TraceReader(trace.path) as reader:
                recorded, _ = recorded_config(reader.header, trace.path)
                backend = reader.header.device.backend
            content = file_digest(trace.path)
            configs = [lab.base.over(device.under(recorded)) for device in lab.devices]
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"{trace.path}: {error}") from error
    for (device, config), policy, seed in product(zip(lab.devices, configs, strict=True), lab.policies, lab.seeds):
        chosen = attrs.evolve(config, policies=policy.policies)
        yield _run((trace, content, backend), chosen, device, policy.label, seed)


def _run(source: tuple[TraceChoice, str, str], config: Config, device: DeviceChoice, policy: str, seed: int) -> Run:
    """``source`` is the trace, its digest, and the backend that it was recorded on."""
    trace, content, backend = source
    code = own_code(config.policies)
    plain = attrs.asdict(config)
    plain["device"]["model"] = device.content
    parts = {
        "trace": content,
        "limit": trace.limit,
        "config": plain,
        "seed": seed,
        "code": code,
        "library": library(),
    }
    identity = digest_of(parts)[:ID_LENGTH]
    return Run(
        id=identity,
        trace=trace.name,
        policy=policy,
        device=device.label,
        seed=seed,
        path=trace.path.resolve(),
        limit=trace.limit,
        config=config,
        content=content,
        library=library(),
        code=code,
        backend=backend,
    )
