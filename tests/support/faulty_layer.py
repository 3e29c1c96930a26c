"""A layer of system operations that records what is done to which file, and fails where it is told to."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from coresident.runtime.store.layer import Layer

OPERATIONS = tuple(name for name, _ in inspect.getmembers(Layer, inspect.isfunction) if name != "pause")
"""Every operation that can fail."""

CHANGING = ("write", "truncate", "chmod", "replace", "link", "unlink", "mkdir", "rmdir")
"""Those that change the disk; so does opening with ``O_CREAT``."""


class Crash(BaseException):
    """The process has died; nothing it had in mind happens any more."""


class FaultyLayer(Layer):
    """The real operations, of which call ``fail_at`` (from 0) raises ``error``.

    ``late``: the call has its effect before it fails, as a rename whose answer got lost; closing always has.
    ``onwards``: every later call fails too, as on a disk that is gone, or in a process that is.
    ``write_limit``: most bytes that one call writes.

    Syncing is recorded and not done, since only a loss of power would tell. For one thread at a time.
    """

    def __init__(
        self,
        fail_at: int | None = None,
        error: BaseException | None = None,
        *,
        late: bool = False,
        onwards: bool = False,
        write_limit: int | None = None,
    ) -> None:
        self.fail_at, self.error, self.late, self.onwards = fail_at, error, late, onwards
        self.write_limit = write_limit
        self.calls: list[tuple[str, str]] = []
        self._changes: list[int] = []
        self.paths: dict[int, str] = {}
        self.before: dict[str, Callable[[str], object]] = {}
        """Called with the path, once, before the next call of an operation."""

    @property
    def operations(self) -> list[str]:
        """What was called, in order."""
        return [name for name, _ in self.calls]

    def states(self) -> list[int]:
        """The calls at which a process that dies leaves the disk in all its different states: those that change it."""
        return [*self._changes, len(self.calls) - 1]

    def bury(self) -> None:
        """Close what a dead process had open."""
        for fd in list(self.paths):
            os.close(fd)
        self.paths.clear()

    def call(self, name: str, real: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Carry out one operation, or fail it."""
        path = self._path(name, arguments)
        if name in self.before:
            self.before.pop(name)(path)
        index = len(self.calls)
        self.calls.append((name, path))
        if name in CHANGING or arguments.get("flags", 0) & os.O_CREAT:
            self._changes.append(index)
        fails = self.fail_at is not None and (index == self.fail_at or (self.onwards and index > self.fail_at))
        if name == "write" and self.write_limit is not None:
            arguments["data"] = arguments["data"][: self.write_limit]
        result = None
        if not fails or self.late or (name == "close" and not isinstance(self.error, Crash)):
            try:
                result = None if name == "fsync" else real(**arguments)
            except OSError:
                if not fails:
                    raise
            if name == "close":
                self.paths.pop(arguments["fd"])
        if fails:
            if result is not None and name in ("open", "dup"):
                os.close(result)
            assert self.error is not None
            raise self.error
        if name in ("open", "dup"):
            self.paths[result] = path
        return result

    def _path(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What the operation is about: the last two parts of its path."""
        if name in ("replace", "link"):
            return os.path.join(os.path.basename(self.paths[arguments["dst_dir_fd"]]), arguments["new"])
        if "name" in arguments:
            folder = self.paths.get(arguments.get("dir_fd", -1), "")
            return os.path.join(os.path.basename(folder), arguments["name"])
        return self.paths[arguments["fd"]]


def _failing(name: str) -> Callable[..., Any]:
    real = getattr(Layer, name)
    names = tuple(inspect.signature(real).parameters)

    def operation(self: FaultyLayer, *args: Any, **kwargs: Any) -> Any:
        return self.call(name, real, dict(zip(names, (self, *args), strict=False)) | kwargs)

    return operation


for _name in OPERATIONS:
    setattr(FaultyLayer, _name, _failing(_name))
