"""Physical devices shared by processes: every scheduler registers its partition, and the sum is bounded.

A folder of the user holds one file for each open scheduler, locked (``flock``) by its process for as long as it is
open. Rule 1: whoever registers holds the folder's lock, adds up what live registrations of the same physical device
hold, and is refused when its own partition does not fit beside them. Rule 2: a registration lives exactly as long as
its lock. The system frees that when the process ends, however it ends; no clock and no process id decides. Rule 3: the
lock is never waited for without a bound. Rule 4: where two registrations give a device different sizes, the smaller
one counts.

The bound is one user's on one machine: other users, and programs that don't use this library, are not in it. Who
removes the folder ends the bound for the schedulers that are open then; they say so when they next publish.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from ...actors.errors import ArtifactInvalid, BudgetExceeded, CoresidentError
from ..logged import Logged, inform, warn
from ..store.faults import StoreFault
from ..store.folders import Folder
from ..store.layer import OS_LAYER, Layer
from ..store.locks import FileLock
from .registrations import (
    STATE,
    SUFFIX,
    Claim,
    Entry,
    Published,
    read_entry,
    read_state,
    remove_strays,
    write_entry,
    write_state,
)

LOCK = "lock"
LOCK_SECONDS = 5.0


class Registration:
    """One open scheduler's place in the registry; held until :meth:`release` or the end of the process."""

    def __init__(self, registry: Registry, name: str, entry: Entry, lock: FileLock) -> None:
        self.name, self.entry = name, entry
        self._registry, self._lock = registry, lock
        self._unpublished = False

    def publish(self, state: Published) -> None:
        """Say how the scheduler is now, for ``coresident status``. A disk that refuses is logged once, and no error."""
        try:
            with self._registry.opened() as folder:
                write_state(folder, self.name, state)
        except CoresidentError as error:
            if not self._unpublished:
                warn(Logged.REGISTRY_UNPUBLISHED, error=error.message)
            self._unpublished = True

    def release(self) -> None:
        """Give the bytes back. A second time, and in a forked child, this does nothing."""
        if not self._lock.held:
            return
        with self._lock:
            try:
                with self._registry.opened() as folder:
                    folder.unlink(self.name + SUFFIX)
                    folder.unlink(self.name + STATE)
            except CoresidentError as error:
                # The lock is what counts, and goes in any case; the next to register reaps the file.
                warn(Logged.REGISTRY_UNPUBLISHED, error=error.message)
        claim = self.entry.claim
        inform(Logged.DEVICE_RELEASED, device=claim.device, partition=claim.partition)


class Registry:
    """The registrations in a folder. ``clock`` gives the wall clock's seconds, which are only ever shown."""

    def __init__(
        self,
        path: Path,
        layer: Layer = OS_LAYER,
        lock_seconds: float = LOCK_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._layer = layer
        self._lock_seconds = lock_seconds
        self._clock = clock

    def register(self, claim: Claim) -> Registration:
        """Take ``claim.partition`` bytes of its device.

        Raises:
            BudgetExceeded: they don't fit beside what others hold; names the others.
            StoreBusy: somebody held the folder's lock for longer than ``lock_seconds``.
            StoreFault, ArtifactInvalid: the folder can't be used.
        """
        with self.opened(create=True) as folder, FileLock.take(folder, LOCK, timeout_s=self._lock_seconds):
            others = self._live(folder, reap=True)
            _check(claim, others)
            name = f"{os.getpid()}-{secrets.token_hex(8)}"
            entry = Entry(os.getpid(), self._clock(), claim)
            lock = self._write(folder, name, entry)
        inform(Logged.DEVICE_CLAIMED, device=claim.device, partition=claim.partition, physical=claim.physical)
        return Registration(self, name, entry, lock)

    def entries(self) -> tuple[Entry, ...]:
        """The live registrations with what they last published, the oldest first; writes nothing.

        Raises ``StoreFault`` or ``ArtifactInvalid`` when the folder can't be read; no folder is no registration.
        """
        try:
            with self.opened() as folder:
                return tuple(sorted(self._live(folder), key=lambda entry: (entry.since, entry.pid)))
        except ArtifactInvalid as error:
            if error.details.get("fault") != "missing":
                raise
            return ()

    def opened(self, create: bool = False) -> Folder:
        """The folder, not through a link, and nobody else's.

        Raises ``StoreFault`` or ``ArtifactInvalid`` when it is not to be had or not to be trusted.
        """
        with Folder.at(self.path.parent, self._layer, create) as parent:
            folder = parent.child(self.path.name, create)
        with ExitStack() as unless_trusted:
            unless_trusted.push(folder)
            status = folder.status()
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise StoreFault(
                    f"{self.path} belongs to user {status.st_uid} with mode {status.st_mode & 0o777:o}: registrations "
                    "need a folder that only you can write to (chmod 700), or name another in CORESIDENT_RUNTIME_DIR",
                    operation="trust",
                    path=str(self.path),
                    errno=None,
                )
            unless_trusted.pop_all()
        return folder

    def _live(self, folder: Folder, reap: bool = False) -> list[Entry]:
        """Registrations whose process holds its lock; ``reap`` removes the others, and needs the folder's lock."""
        live, there = [], folder.names()
        if reap:
            remove_strays(folder, there)
        for name in (name.removesuffix(SUFFIX) for name in there if name.endswith(SUFFIX)):
            if _held(folder, name + SUFFIX):
                try:
                    live.append(read_state(folder, name, read_entry(folder, name)))
                except ArtifactInvalid as error:
                    if error.details.get("fault") != "missing":
                        warn(Logged.REGISTRY_UNREADABLE, error=error.message)
            elif reap:
                folder.unlink(name + SUFFIX)
                folder.unlink(name + STATE)
                inform(Logged.REGISTRY_REAPED, registration=name)
        return live

    def _write(self, folder: Folder, name: str, entry: Entry) -> FileLock:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        lock = FileLock.take(folder, name + SUFFIX, timeout_s=self._lock_seconds, flags=flags)
        try:
            write_entry(lock.file, entry)
        except BaseException:
            with lock:
                folder.unlink(name + SUFFIX)
            raise
        return lock


def _held(folder: Folder, name: str) -> bool:
    """Whether its process lives. Looking takes a shared lock, so that those who look don't see each other."""
    try:
        lock = FileLock.attempt(folder, name, shared=True, flags=os.O_RDONLY)
    except ArtifactInvalid as error:
        if error.details.get("fault") != "missing":
            raise
        return False
    if lock is None:
        return folder.entry(name) is not None
    lock.release()
    return False


def _check(claim: Claim, others: Iterable[Entry]) -> None:
    """Refuse what does not fit beside the others of the same device."""
    same = [other for other in others if other.claim.device == claim.device]
    bounds = [each.physical for each in (claim, *(other.claim for other in same)) if each.physical]
    if not bounds:
        return
    held = sum(other.claim.partition for other in same)
    available = max(0, min(bounds) - held)
    if claim.partition <= available:
        return
    holders = "; ".join(other.words() for other in same) or "nobody holds any of it"
    inform(Logged.DEVICE_REFUSED, device=claim.device, partition=claim.partition, held=held, physical=min(bounds))
    close = "close one of these schedulers ('coresident status' lists them), " if same else ""
    lower = f"lower device.partition to at most {_size(available)}, " if available else ""
    raise BudgetExceeded(
        f"device.partition on the device {claim.device!r} of {_size(min(bounds))} ({holders})",
        claim.partition,
        available,
        f"{close}{lower}or set device.physical if the device has more",
    )


def _size(count: int) -> str:
    return f"{count} bytes ({count / 2**30:.1f} GiB)"
