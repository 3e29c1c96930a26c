"""The pipeline cache's file: what the driver compiled, kept for the next process.

A file is named by all that its content depends on. It holds a line that says what it is, the SHA-256 of the driver's
data, and the data. That begins with the header of the Vulkan specification, VkPipelineCacheHeaderVersionOne: u32 length
32, u32 version 1, u32 vendor, u32 device, 16 bytes of UUID. Drivers do not all check what they are given, so what is
damaged or not of this device is never given to one.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import attrs

from ....actors.errors import BackendFault, InvalidRequest
from ...logged import Logged, warn
from .functions import Handle
from .inventory import DeviceInfo
from .link import Link
from .results import Result

MAGIC = b"coresident pipeline cache 1\n"
HEADER = struct.Struct("<IIII16s")
EMPTY = len(MAGIC) + hashlib.sha256().digest_size + HEADER.size
"""Bytes of the file of a driver that keeps nothing in it, but in a cache of its own."""
LARGEST = 256 << 20
"""Bytes of a file that is still read."""

TRIES = 8
"""Reads of a cache that may grow between its size and its data."""


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for cache files: below ``XDG_CACHE_HOME``, or ``~/.cache``."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "coresident" / "vulkan"


@attrs.frozen
class CacheFile:
    """The file for one device, driver and set of kernels."""

    path: Path
    info: DeviceInfo

    @classmethod
    def of(cls, folder: Path, info: DeviceInfo, kernels: str) -> Self:
        """The file in ``folder`` for kernels with this digest."""
        parts = (info.vendor, info.device, info.driver, info.driver_version, info.cache_uuid.hex(), kernels)
        key = hashlib.sha256("\n".join(str(part) for part in parts).encode()).hexdigest()
        return cls(folder / f"{key}.bin", info)

    def create(self, link: Link) -> Handle:
        """A VkPipelineCache with what the file holds; an empty one, and a warning, when it is of no use."""
        data = self._read()
        if data:
            try:
                return _create(link, data)
            except BackendFault as error:
                link.check()
                self._ignored(f"the driver does not take it: {error}")
        return _create(link, b"")

    @staticmethod
    def empty(link: Link) -> Handle:
        """A VkPipelineCache that has no file."""
        return _create(link, b"")

    def save(self, link: Link, cache: Handle) -> Path:
        """Write what the driver has compiled so far, under the file's name only when it is whole.

        Raises ``InvalidRequest`` when the folder cannot be written.
        """
        data = _data(link, cache)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._publish(MAGIC + hashlib.sha256(data).digest() + data)
        except OSError as error:
            raise InvalidRequest(
                f"the pipeline cache cannot be written to {self.path}: {error}; make room, or set XDG_CACHE_HOME to a "
                "folder that can be written",
                file=str(self.path),
            ) from error
        return self.path

    def _publish(self, content: bytes) -> None:
        descriptor, part = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.stem[:16]}-", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path)
        except BaseException:
            os.unlink(part)
            raise

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                content = file.read(LARGEST + 1)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self._ignored(f"it cannot be read: {error}")
            return b""
        data = content[len(MAGIC) + hashlib.sha256().digest_size :]
        wrong = self._wrong(content, data)
        if wrong is not None:
            self._ignored(wrong)
            return b""
        return data

    def _wrong(self, content: bytes, data: bytes) -> str | None:
        if len(content) > LARGEST:
            return f"it has more than {LARGEST} bytes"
        if content[: -len(data) or None] != MAGIC + hashlib.sha256(data).digest():
            return "it is damaged"
        if len(data) < HEADER.size:
            return f"it has {len(data)} bytes of data, less than its header"
        wanted = HEADER.size, 1, self.info.vendor, self.info.device, self.info.cache_uuid
        found = HEADER.unpack_from(data)
        return None if found == wanted else f"its header is {found}, this driver's is {wanted}"

    def _ignored(self, why: str) -> None:
        warn(Logged.PIPELINE_CACHE_IGNORED, file=str(self.path), why=why, advice="'coresident warm' writes it anew")


def _create(link: Link, data: bytes) -> Handle:
    functions = link.functions
    initial = functions.ffi.from_buffer(data) if data else functions.ffi.NULL
    info = functions.struct("VkPipelineCacheCreateInfo", initialDataSize=len(data), pInitialData=initial)
    return link.create("vkCreatePipelineCache", info)


def _data(link: Link, cache: Handle) -> bytes:
    ffi = link.functions.ffi
    for _ in range(TRIES):
        size = ffi.new("size_t*")
        link.call("vkGetPipelineCacheData", link.device, cache, size, ffi.NULL)
        data = ffi.new("char[]", max(1, size[0]))
        if link.call("vkGetPipelineCacheData", link.device, cache, size, data) != Result.INCOMPLETE:
            return bytes(ffi.buffer(data, size[0]))
    raise BackendFault(f"the driver's pipeline cache kept growing while it was read {TRIES} times: save it again")
