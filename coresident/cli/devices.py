"""``coresident devices``: what this machine can run on, which models it has, and the devices that can be modelled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..actors.errors import ArtifactInvalid
from ..runtime.backends.catalog import availability
from ..runtime.backends.device_file import load_device, shipped
from ..runtime.backends.vulkan.survey import survey
from ..runtime.models.locate import PACKAGES, SYNTHETIC, VARIABLE, find_model
from . import options
from .wording import print_json, screen, size, table_of


def devices(as_json: options.AsJson = False) -> None:
    """Show the backends, what is missing for the others, the Vulkan devices, the machine's memory, the models found,
    and the device models for the modelled backend.
    """
    report = found_here()
    if as_json:
        print_json(report)
        return
    console = screen()
    machine = report["machine"]
    console.print(f"{machine['cores']} CPU cores for this process, {size(machine['memory'])} of memory", style="bold")
    backends = table_of("backends", "name", "here", "note")
    for backend in report["backends"]:
        backends.add_row(backend["name"], "yes" if backend["available"] else "no", backend["note"])
    vulkan = table_of("Vulkan devices", ">index", "name", "kind", "driver", ">memory", ">largest buffer", "")
    for device in report["vulkan_devices"]:
        figures = (size(device["memory"]), size(device["largest_buffer"]), _verdict(device))
        vulkan.add_row(str(device["index"]), device["name"], device["kind"], device["driver"], *figures)
    models = table_of("models", "name", "here", "note")
    for model in report["models"]:
        models.add_row(model["name"], "yes" if model["available"] else "no", model["note"])
    modelled = table_of("device models for the backend modelled", "name", "what", ">partition", ">context")
    for device in report["device_models"]:
        modelled.add_row(device["name"], device["label"], size(device["partition"]), f"{device['context_limit']:,}")
    for table in (backends, *([vulkan] if vulkan.row_count else []), models, modelled):
        console.print()
        console.print(table)


def found_here() -> dict[str, Any]:
    """The same for machines; memory in bytes."""
    named = [SYNTHETIC, *PACKAGES]
    if os.environ.get(VARIABLE):
        named.append(os.environ[VARIABLE])
    vulkan = survey()
    backends = availability(vulkan)
    return {
        "machine": {"cores": _cores(), "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")},
        "backends": [{"name": here.name, "available": here.available, "note": here.note} for here in backends],
        "vulkan_devices": vulkan.as_json(),
        "models": [_model(name) for name in named],
        "device_models": [_device_model(name) for name in shipped()],
    }


def _verdict(device: Mapping[str, Any]) -> str:
    """Whether a Vulkan device is the one that computes, or why it can't."""
    if device["unsuitable"] is not None:
        return f"can't be used: {device['unsuitable']}"
    return "the one that is used" if device["chosen"] else f"used with index = {device['index']} under [device]"


def _cores() -> int:
    """Cores that this process may use; containers and ``taskset`` may leave it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _model(name: str) -> dict[str, Any]:
    """Whether a model is there and is one that can be run: its metadata is read, its weights are not."""
    try:
        source = find_model(name)
        source.open()
        path = source.path
    except (ArtifactInvalid, OSError) as error:
        note = error.message if isinstance(error, ArtifactInvalid) else str(error)
        return {"name": name, "available": False, "note": note}
    note = "untrained, built in" if path == SYNTHETIC else path
    return {"name": name, "available": True, "note": note}


def _device_model(name: str) -> dict[str, Any]:
    """A device model that the package ships; partition in bytes, context in tokens."""
    device = load_device(name)
    figures = {key: getattr(device, key) for key in ("label", "partition", "context_limit", "gap_ns")}
    return {"name": name, **figures, "source": " ".join(device.source.split())}
