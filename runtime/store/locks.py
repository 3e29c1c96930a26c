"""Advisory locks on files of a store (``flock``), which the system releases when their process ends, however it ends.

A lock belongs to the process that took it: a forked child closes its copies at once, and so can neither keep a lock
that its parent has lost nor release one that its parent holds. No process id is ever looked at, so one that is used
again means nothing. A lock's file may be removed or published while others wait for it: whoever gets the lock then
looks whether the file still has its name, and begins again when it has not.
"""

from __future__ import annotations

import os
import weakref
from types import TracebackType
from typing import Self

from .faults import StoreBusy, translated
from .folders import File, Folder

ATTEMPT_S = 0.01
"""Seconds between two attempts at a lock that is waited for with a timeout."""


class FileLock:
    """A lock that is held, shared or exclusive, and the file it is on. Made by :meth:`take` and :meth:`attempt`."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._held = True
        _HELD.add(self)

    @classmethod
    def take(
        cls,
        folder: Folder,
        name: str,
        *,
        shared: bool = False,
        timeout_s: float | None = None,
        flags: int = os.O_RDWR | os.O_CREAT,
    ) -> FileLock:
        """The lock on file ``name`` of ``folder``, waiting for it at most ``timeout_s`` seconds (``None``: for ever).

        Raises :class:`StoreBusy` when it is held for longer. The file is made when ``flags`` say so.
        """
        left = None if timeout_s is None else max(0, round(timeout_s / ATTEMPT_S))
        while True:
            lock = cls._once(folder, name, shared, left is None, flags)
            if lock is not None:
                return lock
            if left is not None:
                if not left:
                    break
                left -= 1
                folder.layer.pause(ATTEMPT_S)
        path = os.path.join(folder.path, name)
        raise StoreBusy(
            f"{path} is locked by another process, and was for {timeout_s} s: wait for it to finish, or end it",
            operation="lock",
            path=path,
            errno=None,
        )

    @classmethod
    def attempt(
        cls, folder: Folder, name: str, *, shared: bool = False, flags: int = os.O_RDWR | os.O_CREAT
    ) -> FileLock | None:
        """The lock, or ``None`` when it is held or its file has just been moved away."""
        return cls._once(folder, name, shared, False, flags)

    @classmethod
    def _once(cls, folder: Folder, name: str, shared: bool, wait: bool, flags: int) -> FileLock | None:
        file = folder.file(name, flags)
        try:
            with translated("lock", file.path):
                folder.layer.lock(file.fd, shared, wait)
            entry, mine = folder.entry(name), file.status()
            if entry is not None and (entry.st_dev, entry.st_ino) == (mine.st_dev, mine.st_ino):
                return cls(file)
        except BaseException as error:
            with file:
                if _is_busy(error):
                    return None
                raise
        file.close()
        return None

    @property
    def held(self) -> bool:
        """Whether this process holds it; false in a forked child and after :meth:`release`."""
        return self._held

    def release(self) -> None:
        """Give it up, and close its file. A second time, and in a forked child, this does nothing."""
        if self._held:
            self._held = False
            _HELD.discard(self)
            self.file.close()

    def _forget(self) -> None:
        """In a forked child: close the copy, which keeps the parent's lock as it is."""
        self._held = False
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._held:
            self._held = False
            _HELD.discard(self)
            self.file.__exit__(kind, error, _)


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _is_busy(error: BaseException) -> bool:
    return isinstance(error.__cause__, BlockingIOError)


def _after_fork() -> None:
    for lock in list(_HELD):
        lock._forget()
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
