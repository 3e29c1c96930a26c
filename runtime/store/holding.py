"""A lease as a store hands it out: with the store's folder, which stays open for as long as it is held."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .folders import Folder
from .leases import Lease


class StoreLease:
    """A hold on one manifest's files across processes, until :meth:`release`, its block's or the process's end."""

    def __init__(self, root: Folder, lease: Lease) -> None:
        self._root, self._lease = root, lease

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._lease.held

    def release(self) -> None:
        """Give it up; a second time this does nothing."""
        with self._root:
            self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._root:
            self._lease.__exit__(kind, error, _)
