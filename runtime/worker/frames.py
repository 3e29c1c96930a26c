"""Frames on a pipe: a little-endian unsigned 32-bit length, then that many bytes. One codec for both ends.

A length above :data:`MAX_FRAME` is refused when its four bytes are there, before anything is set aside for it. The end
of the pipe between two frames is clean; inside of one it is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ...actors.errors import BackendFault

MAX_FRAME = 16 << 20
READ_BYTES = 1 << 16
_LENGTH = struct.Struct("<I")


class FrameInvalid(BackendFault):
    """The other end of the pipe does not speak in frames, or what is in one is not a message."""


def encode_frame(body: bytes) -> bytes:
    """The bytes of a frame. Raises ``FrameInvalid`` for a body above the bound."""
    if len(body) > MAX_FRAME:
        raise FrameInvalid(
            f"a frame of {len(body)} bytes was to be sent, the limit is {MAX_FRAME}: send less at once",
            asked=len(body),
            limit=MAX_FRAME,
        )
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Bodies from bytes as they come, however they are cut."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """The bodies that are complete with these bytes. Raises ``FrameInvalid`` for a length above the bound."""
        self._held += data
        while len(self._held) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._held)
            if size > MAX_FRAME:
                raise FrameInvalid(
                    f"a frame announces {size} bytes, the limit is {MAX_FRAME}: the stream is damaged",
                    announced=size,
                    limit=MAX_FRAME,
                )
            end = _LENGTH.size + size
            if len(self._held) < end:
                return
            body = bytes(self._held[_LENGTH.size : end])
            del self._held[:end]
            yield body

    def end(self) -> None:
        """The pipe has ended. Raises ``FrameInvalid`` inside a frame."""
        if self._held:
            raise FrameInvalid(f"the pipe ended inside a frame, of which {len(self._held)} bytes had come")
