"""``coresident status``: what of this user runs on this machine now, what it holds, and what the stores select."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..actors.errors import CoresidentError
from ..runtime.config import Config, load_config
from ..runtime.host.artifacts import runtime_folder
from ..runtime.host.registrations import Entry
from ..runtime.host.registry import Registry
from ..runtime.store.places import default_store
from ..runtime.store.store import Store
from . import options
from .failures import FAULT
from .wording import print_json, screen, size, table_of

SHOWN = 12
_READY = {"ready": "green", "faulted": "bold red"}


def status(
    config: options.ConfigFile = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A store to show besides those in use; else your own.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the schedulers that are open on this machine, how ready they are, what they hold of which device, their
    workers, and the leases and selections of the stores.

    What is shown is what they last said; that a scheduler is listed means that its process lives. Ends with exit code 1
    when a store is damaged.
    """
    found = status_of(Config() if config is None else load_config(config), store)
    if as_json:
        print_json(found)
    else:
        show(found, screen())
    if any("error" in each for each in found["stores"]):
        raise typer.Exit(FAULT)


def status_of(config: Config, store: Path | None = None, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The same for machines: bytes, seconds and process ids.

    Raises ``StoreFault`` or ``ArtifactInvalid`` when the registrations can't be read.
    """
    folder = runtime_folder(config.host, environ)
    entries = Registry(folder).entries()
    named = store or (Path(config.store.path).expanduser() if config.store.path else default_store(environ))
    used = [Path(entry.claim.store) for entry in entries if entry.claim.store]
    return {
        "registry": str(folder),
        "schedulers": [_scheduler(entry, time.time()) for entry in entries],
        "devices": _devices(entries),
        "stores": [_store(path) for path in dict.fromkeys([named, *used])],
    }


def _scheduler(entry: Entry, now: float) -> dict[str, Any]:
    claim, said = entry.claim, attrs.asdict(entry.published)
    about = {key: getattr(claim, key) for key in ("label", "backend", "device", "partition", "store")}
    return {"pid": entry.pid, **about, **said, "open_seconds": round(max(0.0, now - entry.since), 1)}


def _devices(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Each physical device that is in use: its bytes (0: unknown), and what is held of them."""
    devices: dict[str, list[Entry]] = {}
    for entry in entries:
        devices.setdefault(entry.claim.device, []).append(entry)
    found = []
    for name, holders in devices.items():
        physical = min((each.claim.physical for each in holders if each.claim.physical), default=0)
        held = sum(each.claim.partition for each in holders)
        found.append({"device": name, "physical": physical, "held": held, "schedulers": len(holders)})
    return found


def _store(path: Path) -> dict[str, Any]:
    try:
        found = attrs.asdict(Store(path).status())
    except CoresidentError as error:
        return {"path": str(path), "exists": True, "error": error.message}
    return found


def show(found: Mapping[str, Any], console: Console) -> None:
    """The status as tables and sentences."""
    if found["schedulers"]:
        console.print(_scheduler_table(found["schedulers"]))
        for each in found["schedulers"]:
            if each["error"]:
                ways = f" (open to it: {' or '.join(each['actions'])})" if each["actions"] else ""
                console.print(f"{each['pid']}: {each['error']}{ways}", style="red", soft_wrap=True)
        console.print()
        console.print(_device_table(found["devices"]))
    else:
        console.print("No scheduler of yours is open on this machine.", style="bold")
        console.print(f"(Registrations would be in {found['registry']}.)", style="dim", soft_wrap=True)
    for store in found["stores"]:
        console.print()
        _show_store(store, console)


def _scheduler_table(schedulers: Iterable[Mapping[str, Any]]) -> Table:
    columns = (">pid", "model", "backend", "state", ">context", ">partition", ">open for", ">worker")
    table = table_of("schedulers", *columns)
    for column in table.columns:
        # A figure is shown whole; what a narrow screen has no room for is the end of the label.
        column.no_wrap = column.header != "model"
    for each in schedulers:
        table.add_row(
            str(each["pid"]),
            Text(each["label"], no_wrap=True, overflow="ellipsis"),
            each["backend"],
            each["state"],
            f"{each['admitted_context']:,}" if each["admitted_context"] else "-",
            size(each["partition"]),
            _for(each["open_seconds"]),
            ", ".join(map(str, each["workers"])) or "-",
            style=_READY.get(each["state"], "yellow"),
        )
    return table


def _for(seconds: float) -> str:
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min" if minutes else f"{seconds:.0f} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def _device_table(devices: Iterable[Mapping[str, Any]]) -> Table:
    table = table_of("physical devices in use", "device", ">has", ">held", ">free", ">schedulers")
    for each in devices:
        known = each["physical"]
        free = size(max(0, known - each["held"])) if known else "-"
        table.add_row(
            each["device"], size(known) if known else "unknown", size(each["held"]), free, str(each["schedulers"])
        )
    return table


def _show_store(store: Mapping[str, Any], console: Console) -> None:
    if not store["exists"]:
        console.print(f"There is no store at {store['path']}.", soft_wrap=True)
        return
    if "error" in store:
        console.print(f"The store {store['path']} is damaged: {store['error']}", style="bold red", soft_wrap=True)
        return
    held = f"{_count(store['artifacts'], 'artifact')} of {size(store['bytes'])}"
    records = _count(store["records"], "record")
    console.print(f"Store {store['path']}: {held}, {records} in its journal.", soft_wrap=True)
    if store["partials"]:
        console.print(f"{_count(store['partials'], 'artifact')} staged in part: {size(store['partial_bytes'])}.")
    if store["torn"]:
        console.print(
            f"The journal's end is torn: {store['torn']} bytes, cut off when it is next written.", style="yellow"
        )
    if not store["selections"]:
        console.print("Nothing is selected in it.")
    else:
        console.print()
        console.print(_selections(store["selections"]))
    if store["manifests"]:
        console.print()
        console.print(_manifests(store["manifests"]))
    for each in store["manifests"]:
        if each["fault"]:
            console.print(each["fault"], style="bold red", soft_wrap=True)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _selections(selections: Iterable[Mapping[str, Any]]) -> Table:
    table = table_of("selected", "model", "device", "manifest", ">record")
    for each in selections:
        manifest = each["manifest"][:SHOWN] if each["manifest"] else "nothing"
        table.add_row(each["model"], each["device"], manifest, str(each["sequence"]))
    return table


def _manifests(manifests: Iterable[Mapping[str, Any]]) -> Table:
    table = table_of("manifests", "manifest", "model", "device", ">files", ">bytes", ">leases")
    for each in manifests:
        style = "bold" if each["leases"] else None
        figures = (str(each["files"]), size(each["bytes"]), str(each["leases"]))
        table.add_row(each["digest"][:SHOWN], each["model"] or "?", each["device"] or "?", *figures, style=style)
    return table
