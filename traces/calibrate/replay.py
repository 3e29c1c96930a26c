"""The held-out part of a calibration: a trace replayed in virtual time on a device model, configured as it was."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ...runtime.backends.device_model import DeviceModel
from ...runtime.backends.modelled import ModelledBackend
from ...runtime.config import Bytes, Config
from ...runtime.host.admission import account_at, largest_steps
from ...runtime.host.assembly import assemble
from ..header import Header
from ..opening import modelled, recorded_config
from ..replay_virtual import replay_virtual
from ..workload import load_workload
from .error import Timings
from .observe import Observations


@attrs.frozen
class Recording:
    """One trace as calibration needs it. ``timings`` has the metrics and ``arrived`` the arrivals of its requests."""

    path: str
    header: Header
    seen: Observations
    timings: Mapping[str, dict[str, list[int]]]
    arrived: Mapping[str, int]


def room_for(device: DeviceModel, header: Header) -> DeviceModel:
    """The device with as much workspace and partition as the recorded configuration needs on it.

    Its account is fitted, so a recording that just fitted into its partition may be a few bytes over here.
    """
    config = _configured(device, header, header.device.workspace, header.device.partition)
    heads = _heads(header)
    backend = ModelledBackend(device, heads)
    context = device.context_limit
    charges = [step.charge for step in largest_steps(config, backend, context, heads)]
    workspace = max(header.device.workspace, *charges)
    missing = -account_at(config, backend, heads, context).free + workspace - header.device.workspace
    return attrs.evolve(device, workspace=workspace, partition=header.device.partition + max(0, missing))


def predicted(device: DeviceModel, recording: Recording) -> dict[str, dict[str, list[int]]]:
    """The metrics of a trace's requests in a virtual replay on a device. Raises ``TraceDiverged`` when it can't end."""
    config = _configured(device, recording.header, device.workspace, device.partition)
    assembly = assemble(config, ModelledBackend(device, _heads(recording.header)), _kinds(recording.header))
    timings = Timings()
    replay_virtual(assembly, load_workload(recording.path), (timings,))
    if timings.error is not None:
        raise timings.error
    return timings.requests


def _configured(device: DeviceModel, header: Header, workspace: int, partition: int) -> Config:
    config = modelled(recorded_config(header, "calibrated")[0])
    limits = attrs.evolve(config.device, workspace=Bytes(workspace), partition=Bytes(partition))
    context = min(config.generation.context or device.context_limit, device.context_limit)
    return attrs.evolve(config, device=limits, generation=attrs.evolve(config.generation, context=context))


def _kinds(header: Header) -> Mapping[str, str]:
    return header.decision.heads if header.decision else {}


def _heads(header: Header) -> tuple[str, ...]:
    return tuple(_kinds(header))
