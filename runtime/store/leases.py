"""Leases: as long as somebody reads a model, nobody deletes it, across processes and however the reader ends.

A lease is a file under ``leases/<manifest digest>/`` that its taker holds locked for life. Whether it still counts is
a question to the lock alone: no process id, no time. ``leases/gate`` is a lock that keeps two things apart: taking a
lease (shared, for a moment) and removing what no lease holds (exclusive, see :mod:`.collect`).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from ...actors.errors import ArtifactInvalid
from .digests import check_digest, is_digest
from .faults import StoreFault
from .folders import Folder, child_or_none
from .locks import FileLock

FOLDER, GATE = "leases", "gate"
PATIENCE_S = 30.0
"""Seconds that taking a lease waits for a collection to end, and the other way round."""

_NAME = re.compile(r"[0-9]+-[0-9a-f]{16}")


class Lease:
    """A reader's hold on one manifest's files; released by :meth:`release`, its block, or the process's end."""

    def __init__(self, root: Folder, name: str, entry: str, lock: FileLock) -> None:
        self.name, self.entry = name, entry
        self._root, self._lock = root, lock

    @property
    def held(self) -> bool:
        """Whether this process holds it; false after :meth:`release` and in a forked child."""
        return self._lock.held

    def release(self) -> None:
        """Give it up. A second time, and in a forked child, this does nothing."""
        if not self._lock.held:
            return
        with self._lock, child_or_none(self._root, FOLDER) as leases, child_or_none(leases, self.name) as mine:
            if mine is not None:
                mine.unlink(self.entry)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.release()
        except (ArtifactInvalid, StoreFault) as fault:
            if error is None:
                raise
            error.add_note(f"besides: {fault}")


class Leases:
    """The leases of the store in folder ``root``."""

    def __init__(self, root: Folder) -> None:
        self.root = root

    def take(self, name: str, timeout_s: float | None = PATIENCE_S) -> Lease:
        """A lease on manifest digest ``name``. Afterwards look whether its files are there: they won't go any more.

        Raises ``ArtifactInvalid`` for a malformed digest, ``StoreBusy`` when a collection runs for longer than
        ``timeout_s`` seconds, and ``StoreFault``, as in a read-only store, where nothing can be deleted either.
        """
        check_digest(name)
        entry = f"{os.getpid()}-{secrets.token_hex(8)}"
        with ExitStack() as undo:
            with (
                self.gate(shared=True, timeout_s=timeout_s),
                self.root.child(FOLDER) as leases,
                leases.child(name, create=True) as mine,
            ):
                lease = undo.enter_context(Lease(self.root, name, entry, _made(mine, entry)))
            undo.pop_all()
        return lease

    def count(self, name: str) -> int:
        """How many leases on ``name`` are held, in all processes."""
        check_digest(name)
        with child_or_none(self.root, FOLDER) as leases, child_or_none(leases, name) as mine:
            return 0 if mine is None else sum(1 for entry in _entries(mine) if not _stale(mine, entry))

    def leased(self) -> frozenset[str]:
        """Every manifest digest that somebody holds a lease on."""
        with child_or_none(self.root, FOLDER) as leases:
            names = [] if leases is None else [name for name in leases.names() if is_digest(name)]
        return frozenset(name for name in names if self.count(name))

    def reap(self, timeout_s: float | None = PATIENCE_S) -> int:
        """Remove the files of leases whose holders are gone; how many."""
        with child_or_none(self.root, FOLDER) as leases:
            if leases is None:
                return 0
        with self.gate(shared=False, timeout_s=timeout_s):
            return self.reap_behind_gate()

    def reap_behind_gate(self) -> int:
        """:meth:`reap`, for a caller that holds the gate exclusively."""
        reaped = 0
        with self.root.child(FOLDER) as leases:
            for name in leases.names():
                if not is_digest(name):
                    continue
                with leases.child(name) as mine:
                    reaped += sum(1 for entry in _entries(mine) if _stale(mine, entry) and mine.unlink(entry))
                    empty = not mine.names()
                if empty:
                    leases.rmdir(name)
        return reaped

    @contextmanager
    def gate(self, shared: bool, timeout_s: float | None = PATIENCE_S) -> Iterator[None]:
        """Keep collections out (``shared``), or everybody; for what must not change between a look and an act."""
        with (
            self.root.child(FOLDER, create=True) as leases,
            FileLock.take(leases, GATE, shared=shared, timeout_s=timeout_s),
        ):
            yield


def _made(mine: Folder, entry: str) -> FileLock:
    """A new lease file, locked. The gate is held, so nobody takes it for a stale one in between."""
    try:
        return FileLock.take(mine, entry, flags=os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except BaseException as error:
        try:
            mine.unlink(entry)
        except Exception as fault:
            error.add_note(f"besides: {fault}")
        raise


def _entries(mine: Folder) -> list[str]:
    return [name for name in mine.names() if _NAME.fullmatch(name)]


def _stale(mine: Folder, entry: str) -> bool:
    """Whether nobody holds this lease. Looking takes a shared lock, so that those who look don't see each other."""
    try:
        lock = FileLock.attempt(mine, entry, shared=True, flags=os.O_RDONLY)
    except ArtifactInvalid as error:
        if error.details["fault"] != "missing":
            raise
        return True
    if lock is None:
        return mine.entry(entry) is None
    lock.release()
    return True
