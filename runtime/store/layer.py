"""The operations of the system that a store uses, as one object, so that a test can make any of them fail.

Everything in this package reaches files through a :class:`Layer` and nothing else. Names are relative to an open
folder (``dir_fd``), so no path is ever walked twice. The methods raise ``OSError`` as :mod:`os` does.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from types import ModuleType

from .faults import StoreFault

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such module; the store then refuses to open, with its reason.
    fcntl = None

FULL_SYNC_LACKS = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)


class Layer:
    """The real operations. A subclass may count them, or make them fail."""

    def open(self, name: str, flags: int, mode: int = 0o600, dir_fd: int | None = None) -> int:
        """Open a file or folder, closed in child programs; its descriptor."""
        return os.open(name, flags, mode, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        """Close a descriptor; afterwards it is closed even when this raises."""
        os.close(fd)

    def dup(self, fd: int) -> int:
        """A second descriptor of the same open file."""
        return os.dup(fd)

    def read(self, fd: int, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        return os.read(fd, size)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write some of ``data``; how many bytes."""
        return os.write(fd, data)

    def seek(self, fd: int, position: int, whence: int = os.SEEK_SET) -> int:
        """Move the file's position; where it is now."""
        return os.lseek(fd, position, whence)

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend a file to ``size`` bytes."""
        os.ftruncate(fd, size)

    def chmod(self, fd: int, mode: int) -> None:
        """Set the permissions of an open file."""
        os.fchmod(fd, mode)

    def fsync(self, fd: int) -> None:
        """Return when the file, or the names in a folder, are on the medium.

        On macOS ``fsync`` leaves them in the drive's cache, and ``F_FULLFSYNC`` does not; not every file system has it.
        """
        if sys.platform == "darwin" and fcntl is not None:
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            except OSError as error:
                if error.errno not in FULL_SYNC_LACKS:
                    raise
            else:
                return
        os.fsync(fd)

    def fstat(self, fd: int) -> os.stat_result:
        """What an open file is."""
        return os.fstat(fd)

    def lstat(self, name: str, dir_fd: int) -> os.stat_result:
        """What a name in a folder is, links not followed."""
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def free_bytes(self, fd: int) -> int:
        """Bytes that this user may still write to the file system of an open file; some report nothing: no limit."""
        figures = os.fstatvfs(fd)
        return figures.f_bavail * figures.f_frsize if figures.f_blocks else sys.maxsize

    def replace(self, name: str, new: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Rename, taking the place of what was there, atomically."""
        os.replace(name, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def link(self, name: str, new: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        """A second name for a file; links are not followed."""
        os.link(name, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)

    def unlink(self, name: str, dir_fd: int) -> None:
        """Remove a name that is not a folder."""
        os.unlink(name, dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int = 0o700, dir_fd: int | None = None) -> None:
        """Make a folder."""
        os.mkdir(name, mode, dir_fd=dir_fd)

    def rmdir(self, name: str, dir_fd: int) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=dir_fd)

    def listdir(self, fd: int) -> list[str]:
        """The names in an open folder, in no order."""
        return os.listdir(fd)

    def lock(self, fd: int, shared: bool, wait: bool) -> None:
        """Take an open file's advisory lock (``flock``); ``BlockingIOError`` when it is held and ``wait`` is false."""
        if fcntl is None:
            raise StoreFault(UNSUPPORTED, operation="lock", path="", errno=None)
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))

    def pause(self, seconds: float) -> None:
        """Wait between two attempts at a lock."""
        time.sleep(seconds)


UNSUPPORTED = (
    f"a store needs advisory file locks (flock) and folders opened without following links, which {sys.platform} "
    "does not offer: keep the store on Linux or macOS, and give models by their paths here"
)
OS_LAYER = Layer()


def require_support() -> None:
    """Refuse, with :class:`StoreFault`, a system that can't keep the store's promises (Windows)."""
    if fcntl is None or not hasattr(os, "O_NOFOLLOW") or os.open not in os.supports_dir_fd:
        raise StoreFault(UNSUPPORTED, operation="open", path="", errno=None)
