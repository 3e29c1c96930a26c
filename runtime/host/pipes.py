"""Pipes to a child process, without a turn of the event loop for what can be done at once.

Trio's streams begin every call with such a turn, which a token would pay for on its way here and on its verdict's way
back. Where pipes are no file descriptors (Windows), the streams are used as they are.
"""

from __future__ import annotations

import os
import sys

import trio
from trio.abc import ReceiveStream, SendStream

from ..worker.frames import READ_BYTES

if sys.platform != "win32":
    from trio.lowlevel import FdStream


async def send(stream: SendStream, data: bytes) -> None:
    """Write all of it; by one caller at a time. Raises ``BrokenResourceError`` or ``ClosedResourceError``."""
    if sys.platform != "win32" and isinstance(stream, FdStream):
        data = data[_written(stream.fileno(), data) :]
    if data:
        await stream.send_all(data)


async def receive(stream: ReceiveStream) -> bytes | bytearray:
    """What has come, at least a byte; nothing at the end. Raises as :func:`send`."""
    if sys.platform == "win32" or not isinstance(stream, FdStream):
        return await stream.receive_some(READ_BYTES)
    while True:
        await trio.lowlevel.wait_readable(stream.fileno())
        try:
            # Asked for anew, since by now the stream may be closed and its number somebody else's.
            return os.read(stream.fileno(), READ_BYTES)
        except BlockingIOError:
            continue
        except OSError as error:
            raise trio.BrokenResourceError from error


def _written(number: int, data: bytes) -> int:
    """How much the pipe took; what is wrong with it is for the stream to say."""
    try:
        return os.write(number, data)
    except OSError:
        return 0
