"""The worker process: its pipes, its two threads, and its end.

The main thread reads messages, so that a yield is heard while a step runs on the device's thread. Nothing but frames
goes to the real standard output: whatever prints, prints to standard error. The worker ends when it is told to, or its
input ends, which is what the death of its parent looks like from here; it also looks now and then whether it still has
the same parent, as another child of that may hold the pipe open. An interrupt from the terminal reaches the whole
process group and is the parent's to answer; being in that group, the worker is also reached by whatever ends all of it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator

from ..backends.catalog import open_backend
from .flat import Body, decode_body, encode_body
from .frames import READ_BYTES, FrameDecoder, FrameInvalid, encode_frame
from .serving import Opener, Worker

PARENT_SECONDS = 1.0
GRACE_SECONDS = 2.0
EXIT_CLEAN, EXIT_CUT, EXIT_DAMAGED = 0, 70, 76


class _Pipes:
    """The frames' own file descriptors, claimed from standard input and output."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._in, self._out = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._parent = os.getppid()
        self._lock = threading.Lock()

    def send(self, body: Body) -> None:
        """Write one frame; from any thread. A host that no longer reads is gone, and this process goes too."""
        data = memoryview(encode_frame(encode_body(body)))
        with self._lock:
            while data:
                try:
                    data = data[os.write(self._out, data) :]
                except OSError:
                    _exit(EXIT_CUT)

    def bodies(self) -> Iterator[Body]:
        """Messages until the last one, or the end of the input or the parent. Raises ``FrameInvalid``."""
        decoder = FrameDecoder()
        while data := self._read():
            for frame in decoder.feed(data):
                body = decode_body(frame)
                if body["kind"] == "end":
                    return
                yield body
        decoder.end()

    def _read(self) -> bytes:
        # Windows can't wait for a pipe with a time limit, and has no parents that change.
        while os.name == "posix" and not select.select([self._in], [], [], PARENT_SECONDS)[0]:
            if os.getppid() != self._parent:
                return b""
        return os.read(self._in, READ_BYTES)


def _exit(code: int) -> None:
    """End without waiting for threads: a step may be in the middle of a long segment."""
    sys.stderr.flush()
    os._exit(code)


def main(opener: Opener = open_backend, grace: float = GRACE_SECONDS) -> None:
    """Serve the host on standard input and output, then end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipes = _Pipes()
    worker = Worker(pipes.send, opener)
    code = EXIT_CLEAN
    try:
        for body in pipes.bodies():
            worker.take(body)
    except FrameInvalid as error:
        sys.stderr.write(f"{error}\n")
        code = EXIT_DAMAGED
    if not worker.end(grace):
        code = code or EXIT_CUT
    _exit(code)
