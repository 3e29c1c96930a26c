"""Files and folders that are reached from an open folder, name by name, without following links.

A path is looked up once, when the store is opened. From there every folder is opened relative to its parent's
descriptor and every file relative to its folder's, so a symbolic link planted later, at any level, redirects nothing:
it is refused, and named. Errors are typed: see :mod:`.faults`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .faults import StoreFault, invalid, missing, translated
from .layer import OS_LAYER, Layer, require_support

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_ROOT = _FOLDER | getattr(os, "O_CLOEXEC", 0)
# A named pipe in a file's place would block the opening; regular files take no notice of the flag.
_FILE = _FLAGS | getattr(os, "O_NONBLOCK", 0)
_ODD = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
"""What opening a name answers when something else has it: a link, a file, a folder, a socket."""


class _Open:
    """Something open, with its path for messages. Closing it twice does nothing."""

    def __init__(self, layer: Layer, fd: int, path: str) -> None:
        self.layer, self.path = layer, path
        self._fd: int | None = fd

    @property
    def fd(self) -> int:
        """The descriptor, while it is open."""
        if self._fd is None:
            raise InvalidRequest(f"{self.path} is closed: open it again")
        return self._fd

    def close(self) -> None:
        """Close it. What the system reports then is raised as :class:`StoreFault`."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with translated("close", self.path):
                self.layer.close(fd)

    def detach(self) -> int:
        """The descriptor, which the caller closes from now on."""
        fd, self._fd = self.fd, None
        return fd

    def sync(self) -> None:
        """Return when it is on the medium: a file's bytes, or a folder's names."""
        with translated("sync", self.path):
            self.layer.fsync(self.fd)

    def status(self) -> os.stat_result:
        """What the system says of it."""
        with translated("look at", self.path):
            return self.layer.fstat(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.close()
        except StoreFault as fault:
            if error is None:
                raise
            error.add_note(f"besides: {fault}")


class File(_Open):
    """An open regular file."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes from the position on; none at the end."""
        with translated("read", self.path):
            return self.layer.read(self.fd, size)

    def write(self, data: bytes) -> None:
        """Write all of ``data`` at the position."""
        left = memoryview(data)
        while left:
            with translated("write", self.path):
                left = left[self.layer.write(self.fd, left) :]

    def seekable(self) -> bool:
        """True: this is a regular file."""
        return True

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        """Move as ``lseek`` does; bytes from the start."""
        with translated("seek in", self.path):
            return self.layer.seek(self.fd, position, whence)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes, and stand at its end."""
        with translated("truncate", self.path):
            self.layer.truncate(self.fd, size)
        self.seek(size)

    def settle(self) -> None:
        """Sync it, and make the system report what closing would, while descriptor and lock stay as they are."""
        self.sync()
        with translated("close", self.path):
            self.layer.close(self.layer.dup(self.fd))

    def chmod(self, mode: int) -> None:
        """Set its permissions."""
        with translated("set the mode of", self.path):
            self.layer.chmod(self.fd, mode)

    @property
    def size(self) -> int:
        """Bytes, as of now."""
        return self.status().st_size


class Folder(_Open):
    """An open folder, whose children are opened relative to it. All names are single names, never paths."""

    @classmethod
    def at(cls, path: Path | str, layer: Layer = OS_LAYER, create: bool = False) -> Folder:
        """The folder at a path, whose links are followed here, once; ``create`` makes it and its parents (mode 0700).

        Raises ``ArtifactInvalid`` (``missing``), and :class:`StoreFault`, also on a system without what a store needs.
        """
        require_support()
        name = os.fspath(path)
        if not create and not os.path.lexists(name):
            raise invalid(name, "missing", "there is no such folder: give the path of a store")
        with translated("open", name):
            if create and not os.path.isdir(name):
                _make(os.path.abspath(name), layer)
            return cls(layer, layer.open(name, _ROOT), name)

    def child(self, name: str, create: bool = False) -> Folder:
        """The folder ``name`` in this one; ``create`` makes it (mode 0700) and syncs this one when it isn't there."""
        path = self._path(name)
        try:
            return Folder(self.layer, self._open(name, _FOLDER | _FLAGS, "open"), path)
        except ArtifactInvalid as error:
            if not create or error.details["fault"] != "missing":
                raise
        with translated("make", path), _already_there():
            self.layer.mkdir(name, 0o700, self.fd)
        self.sync()
        return Folder(self.layer, self._open(name, _FOLDER | _FLAGS, "open"), path)

    def file(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> File:
        """The regular file ``name`` in this folder, opened with ``flags`` of :mod:`os` (``O_CREAT`` makes it)."""
        operation = "make" if flags & os.O_CREAT else "open"
        opened = File(self.layer, self._open(name, flags | _FILE, operation, mode), self._path(name))
        try:
            if not stat.S_ISREG(opened.status().st_mode):
                raise _not_a_file(opened.path)
        except BaseException:
            with opened:
                raise
        return opened

    def names(self) -> list[str]:
        """The names in this folder, sorted."""
        with translated("list", self.path):
            return sorted(self.layer.listdir(self.fd))

    def entry(self, name: str) -> os.stat_result | None:
        """What a name in this folder is, links not followed; ``None`` when there is no such name."""
        path = self._path(name)
        try:
            with translated("look at", path):
                return self.layer.lstat(name, self.fd)
        except ArtifactInvalid:
            return None

    def replace(self, name: str, target: Folder, new: str) -> None:
        """Move a file of this folder to ``target``, under a new name, in place of what has that name, atomically."""
        self._path(name)
        with translated("publish", target._path(new)):
            self.layer.replace(name, new, self.fd, target.fd)

    def link(self, name: str, target: Folder, new: str) -> bool:
        """Give a file of this folder a second name in ``target``; false when that name is taken."""
        self._path(name)
        try:
            with translated("link", target._path(new)):
                self.layer.link(name, new, self.fd, target.fd)
        except StoreFault as fault:
            if fault.details["errno"] != errno.EEXIST:
                raise
            return False
        return True

    def unlink(self, name: str) -> bool:
        """Remove a file, or a link itself; false when there is no such name."""
        path = self._path(name)
        try:
            with translated("remove", path):
                self.layer.unlink(name, self.fd)
        except ArtifactInvalid:
            return False
        return True

    def rmdir(self, name: str) -> None:
        """Remove an empty folder in this one."""
        with translated("remove", self._path(name)):
            self.layer.rmdir(name, self.fd)

    def free_bytes(self) -> int:
        """Bytes that may still be written to this folder's file system."""
        with translated("look at", self.path):
            return self.layer.free_bytes(self.fd)

    def _path(self, name: str) -> str:
        """The path of a child, for messages; ``InvalidRequest`` when ``name`` is no single name."""
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise InvalidRequest(f"{name!r} is no name of a file in {self.path}: give one name, without separators")
        return os.path.join(self.path, name)

    def _open(self, name: str, flags: int, operation: str, mode: int = 0o600) -> int:
        path = self._path(name)
        try:
            with translated(operation, path):
                return self.layer.open(name, flags, mode, self.fd)
        except StoreFault as fault:
            if fault.details["errno"] not in _ODD:
                raise
            raise self._no_way(name, path, bool(flags & getattr(os, "O_DIRECTORY", 0))) from fault.__cause__

    def _no_way(self, name: str, path: str, folder: bool) -> ArtifactInvalid:
        """The error for a name that could not be opened because of what it is."""
        entry = self.entry(name)
        if entry is None:
            return missing(path)
        if stat.S_ISLNK(entry.st_mode):
            return invalid(path, "symlink", "this is a symbolic link, which a store never follows: remove it")
        if folder:
            return invalid(path, "not a folder", "a file is in the place of a folder: remove it")
        return _not_a_file(path)


def _not_a_file(path: str) -> ArtifactInvalid:
    return invalid(path, "not a file", "this is not a regular file: remove it")


def _make(path: str, layer: Layer) -> None:
    """Make a folder, and the parents that it lacks; the names are on the medium when this returns."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _make(parent, layer)
    with _already_there():
        layer.mkdir(path, 0o700)
    with Folder(layer, layer.open(parent, _ROOT), parent) as folder:
        folder.sync()


@contextmanager
def _already_there() -> Iterator[None]:
    """Let another process make the folder first."""
    try:
        yield
    except FileExistsError:
        return


@contextmanager
def child_or_none(parent: Folder | None, name: str) -> Iterator[Folder | None]:
    """The folder ``name`` in another, open within the block; ``None`` when either is not there."""
    try:
        folder = None if parent is None else parent.child(name)
    except ArtifactInvalid as error:
        if error.details["fault"] != "missing":
            raise
        folder = None
    if folder is None:
        yield None
    else:
        with folder:
            yield folder
