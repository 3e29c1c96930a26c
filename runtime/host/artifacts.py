"""What a host holds while a scheduler is open: its part of the physical device, and leases on the models it runs.

Both are taken before anything is loaded and given back when the device's thread has ended, or its process has been
reaped: not when the scheduler is told to close, not when it faults, and not between a fault and its repair. So a
collection of the store never takes away what a device may still read, and nobody is given memory that is not free yet.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ...actors.errors import ArtifactInvalid, CoresidentError, InvalidRequest
from ...actors.events import ReadinessChanged
from ..config_store import OFF, REQUIRED, HostConfig
from ..logged import Logged, inform, warn
from ..models.stored import StoredModel, stored_of
from ..store.faults import StoreBusy, StoreFault
from ..store.holding import StoreLease
from .assembly import GENERATION, Assembly
from .physical import physical_of
from .registrations import Claim, Published
from .registry import Registration, Registry
from .watch import HostWatch

VARIABLE = "CORESIDENT_RUNTIME_DIR"
NAME = "coresident"
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class Holding:
    """What one open scheduler holds. ``worker`` gives the id of the process that has the device now, if one does."""

    def __init__(self, worker: Callable[[], int | None] = lambda: None) -> None:
        self.watch = HostWatch(self._publish)
        self._worker = worker
        self._registration: Registration | None = None
        self._leases: list[tuple[StoredModel, StoreLease]] = []

    def take(self, assembly: Assembly) -> None:
        """Register the partition and lease the models. What was taken before an error is held until :meth:`release`.

        This may wait for locks, for seconds, so not on a thread that must not.

        Raises:
            BudgetExceeded: the physical device has no room for the partition beside the others.
            ArtifactInvalid: a model of the store is gone.
            StoreBusy: another process holds a lock for too long.
            StoreFault: a lease can't be written, though the store is no read-only one.
            InvalidRequest: nothing can be registered, and the configuration requires it.
        """
        stored = stored_of(assembly.backend)
        self._registration = _registered(assembly, stored)
        for model in {model.manifest: model for model in stored.values()}.values():
            lease = _leased(model)
            if lease is not None:
                self._leases.append((model, lease))

    def release(self, reader: threading.Thread | None = None) -> None:
        """Give everything back, but while ``reader`` runs: a device's thread that hangs may read and holds its memory.

        A second time does nothing.
        """
        if reader is None:
            self._give_back()
        elif self._registration is not None or self._leases:
            warn(Logged.HOLDING_KEPT, thread=reader.name, leases=len(self._leases))
            threading.Thread(target=self._give_back, args=(reader,), name="coresident-holding", daemon=True).start()

    def _give_back(self, after: threading.Thread | None = None) -> None:
        if after is not None:
            after.join()
        leases, self._leases = self._leases, []
        for model, lease in leases:
            _end(model, lease)
        registration, self._registration = self._registration, None
        if registration is not None:
            registration.release()

    def _publish(self, now: ReadinessChanged) -> None:
        """For ``coresident status``; on the host's thread, a few small writes for each change."""
        if self._registration is None:
            return
        error = "" if now.error is None else f"{type(now.error).__name__}: {now.error.message}"
        worker = self._worker()
        workers = () if worker is None or worker == os.getpid() else (worker,)
        self._registration.publish(
            Published(now.state, now.revision, now.admitted_context, now.actions, error, workers)
        )


def runtime_folder(host: HostConfig, environ: Mapping[str, str] = os.environ) -> Path:
    """Where this user's registrations are; the same for all programs of one user, also where one has no session."""
    named = host.folder or environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    session = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    return session / NAME if session.is_dir() else Path(tempfile.gettempdir()) / f"{NAME}-{user}"


def _registered(assembly: Assembly, stored: Mapping[str, StoredModel]) -> Registration | None:
    config = assembly.config
    if config.host.registry == OFF:
        return None
    physical = physical_of(config.device, getattr(assembly.backend, "planned", None))
    claim = Claim(
        device=physical.id,
        partition=config.device.partition,
        physical=physical.bytes,
        backend=assembly.backend.name,
        label=assembly.models[GENERATION].label,
        store=next((model.store for model in stored.values()), ""),
    )
    folder = runtime_folder(config.host)
    try:
        return Registry(folder).register(claim)
    except StoreBusy:
        raise
    except (StoreFault, ArtifactInvalid) as error:
        if config.host.registry == REQUIRED:
            raise InvalidRequest(
                f"host.registry is {REQUIRED!r}, and nothing can be registered in {folder}: {error.message}",
                folder=str(folder),
            ) from error
        warn(
            Logged.REGISTRY_UNAVAILABLE,
            folder=str(folder),
            error=error.message,
            effect="other processes don't know what this one takes of the device, nor this one what they take",
        )
        return None


def _leased(model: StoredModel) -> StoreLease | None:
    """A lease on a model's files. A store that this user can't write to gives none; this user deletes nothing there.

    Raises ``StoreFault`` for a disk that is full or fails: there, a collection would not know that the files are used.
    """
    try:
        lease = model.lease()
    except StoreFault as error:
        if error.details.get("errno") not in _UNWRITABLE:
            raise
        warn(
            Logged.LEASE_UNAVAILABLE,
            model=model.name,
            manifest=model.manifest,
            error=error.message,
            effect="the model runs; who may write to this store can delete its files meanwhile",
        )
        return None
    inform(Logged.LEASE_TAKEN, model=model.name, manifest=model.manifest)
    return lease


def _end(model: StoredModel, lease: StoreLease) -> None:
    """Let go. The lock is what counts, and goes even where the file can't be removed."""
    try:
        lease.release()
    except CoresidentError as error:
        warn(Logged.LEASE_RELEASED, model=model.name, manifest=model.manifest, error=error.message)
    else:
        inform(Logged.LEASE_RELEASED, model=model.name, manifest=model.manifest)
