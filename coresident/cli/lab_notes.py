"""What a sweep's figures don't say by themselves: failed runs, devices that stand in, seeds that change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.backends.device_file import load_device
from ..traces.lab.plan import Run
from ..traces.opening import MODELLED
from .wording import shown

FEW = 10


def failures(runs: Sequence[Run], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each run that failed, the first few of them."""
    failed = [run for run in runs if results[run.id]["error"] is not None]
    lines = [_failure(run, results[run.id]["error"]) for run in failed[:FEW]]
    if len(failed) > FEW:
        lines.append(f"and {len(failed) - FEW} more failed: the table has them all")
    return lines


def _failure(run: Run, error: Mapping[str, str]) -> str:
    return shown(f"Failed: {run.label}: {error['type']}: {error['message']}")


def notes(runs: Sequence[Run]) -> list[str]:
    """Lines about what was simulated, to be read with its figures."""
    return [*_stand_in(runs), *_without_noise(runs)]


def _stand_in(runs: Sequence[Run]) -> list[str]:
    """Runs on the default model of traces that another backend recorded."""
    standing = [run for run in runs if not run.config.device.model and run.backend != MODELLED]
    if not standing:
        return []
    traces = ", ".join(dict.fromkeys(run.trace for run in standing))
    backends = ", ".join(dict.fromkeys(run.backend for run in standing))
    return [
        shown(
            f"Note: {traces}: recorded on the {backends} backend, simulated on the default model, which is another "
            "device. 'coresident calibrate' makes a model of the recorded one, 'coresident devices' lists those that "
            "ship; name one under [[devices]]."
        )
    ]


def _without_noise(runs: Sequence[Run]) -> list[str]:
    if len({run.seed for run in runs}) < 2:
        return []
    models = {run.config.device.model for run in runs}
    quiet = {model for model in models if not model or not load_device(model).noise}
    devices = ", ".join(dict.fromkeys(run.device for run in runs if run.config.device.model in quiet))
    if not devices:
        return []
    return [
        shown(
            f"Note: no noise on {devices}: there, seeds change made-up token ids and with them the digest, not the "
            "figures."
        )
    ]
