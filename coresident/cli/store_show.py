"""What ``coresident store`` shows: tables of selections, manifests and files, and the bar of a long copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ..runtime.store.manifest import ANY
from ..runtime.store.selection import FileState, StoreStatus
from .wording import screen, size, table_of

SHOWN = 12
"""Digits of a digest in a table, as in ``coresident status``; a command takes them for the whole digest."""


@attrs.frozen
class Checked:
    """A selection that was verified: its manifest's fault (``untrusted``: no trusted key signed it), or its files."""

    model: str
    device: str
    manifest: str
    key: str
    fault: str
    files: tuple[FileState, ...] = ()
    untrusted: bool = False

    @property
    def whole(self) -> bool:
        """Whether signature and every byte are right."""
        return not self.fault and all(state.state == "ok" for state in self.files)

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        files = [{**attrs.asdict(state.entry), "state": state.state, "fault": state.fault} for state in self.files]
        return {**attrs.asdict(self, recurse=False), "whole": self.whole, "files": files}


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, on a terminal only; call it with the bytes done since."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)


def show_checked(store: str, checked: Sequence[Checked], again: str = "") -> None:
    """Every file with what it is, and what is wrong in words. ``again`` are the options that a next command needs."""
    console = screen()
    if not checked:
        console.print(f"{store}: nothing is selected, so there is nothing to verify.", soft_wrap=True)
        return
    table = table_of("every byte read", "model", "device", "file", ">size", "state")
    faults = []
    for one in checked:
        if one.fault:
            table.add_row(one.model, one.device, f"manifest {one.manifest[:SHOWN]}", "", "refused", style="bold red")
            faults.append(one.fault)
        for state in one.files:
            style = None if state.state == "ok" else "bold red"
            table.add_row(one.model, one.device, state.entry.name, size(state.entry.size), state.state, style=style)
            faults += [f"{state.entry.name}: {state.fault}"] if state.fault else []
    console.print(table)
    for fault in faults:
        console.print(fault, style="bold red", soft_wrap=True)
    for one in checked:
        if not (one.whole or one.untrusted):
            device = "" if one.device == ANY else f" --device {one.device}"
            command = f"coresident store repair {one.model}{device} --from FOLDER{again}"
            console.print(f"To replace what is damaged: {command}", soft_wrap=True)


def show_status(status: StoreStatus) -> None:
    """What is selected, what there is, and how much."""
    console = screen()
    if not status.exists:
        console.print(f"{status.path}: there is no store yet; 'coresident store stage' makes one.", soft_wrap=True)
        return
    selections = table_of("selected", "model", "device", "manifest", ">record")
    for one in status.selections:
        selections.add_row(one.model, one.device, (one.manifest or "nothing")[:SHOWN], str(one.sequence))
    manifests = table_of("manifests", "manifest", "model", "device", ">files", ">size", ">leases", "signed by")
    for state in status.manifests:
        figures = (str(state.files), size(state.bytes), str(state.leases))
        known = (state.model, state.device, *figures, state.key[:SHOWN]) if not state.fault else ("damaged",)
        manifests.add_row(state.digest[:SHOWN], *known, style="bold red" if state.fault else None)
    for table in (selections, manifests):
        console.print(table if table.row_count else f"{table.title}: none")
        console.print()
    unfinished = f"; unfinished copies: {status.partials}, {size(status.partial_bytes)}" if status.partials else ""
    console.print(f"{status.path}: artifacts: {status.artifacts}, {size(status.bytes)}{unfinished}.", soft_wrap=True)
    for state in status.manifests:
        if state.fault:
            console.print(state.fault, style="bold red", soft_wrap=True)
