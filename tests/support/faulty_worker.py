"""A worker process that breaks on command: ``python faulty_worker.py FOLDER LAST_SECONDS``.

A file ``fault.json`` in the folder says where (``operation``, ``segment``) and how (``act``); it is taken once. Point 0
is before an operation's first segment, point ``k`` the end of its ``k``-th.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import struct
import sys
import time
import types
from pathlib import Path

FOLDER, LAST_SECONDS = Path(sys.argv[1]), float(sys.argv[2])
# The frames' own file descriptors, before the worker claims them.
OUT = os.dup(1)
OPERATIONS = ("load", "warm", "prefill", "decode", "score", "copy", "save", "restore", "store", "fetch")


def without_the_front_door():
    """A worker doesn't need what ``coresident/__init__`` imports, and there are many of them here."""
    spec = importlib.util.find_spec("coresident")
    package = types.ModuleType("coresident")
    package.__path__ = spec.submodule_search_locations
    sys.modules["coresident"] = package


def same_pipe():
    """Every descriptor of this process for the pipe that frames are written to."""
    wanted = os.fstat(OUT).st_ino
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name)).st_ino == wanted:
                yield int(name)
        except OSError:
            continue


def wait_for_the_end():
    while True:
        time.sleep(10)


def hold():
    (FOLDER / "reached").touch()
    while not (FOLDER / "release").exists():
        time.sleep(0.001)
    (FOLDER / "release").unlink()


def take(number):
    """A signal to the whole process; this thread waits for what it does, which may come a little later."""
    os.kill(os.getpid(), number)
    wait_for_the_end()


def close():
    for number in list(same_pipe()):
        os.close(number)
    wait_for_the_end()


def write(data):
    os.write(OUT, data)
    wait_for_the_end()


def cut():
    os.write(OUT, struct.pack("<I", 100) + b'{"kind"')
    os._exit(9)


def fail():
    raise RuntimeError("broken on command")


def lose():
    from coresident.actors.errors import DeviceLost

    raise DeviceLost("lost on command")


def leave():
    sys.stderr.write("the end is near\n")
    os._exit(7)


ACTS = {
    "hold": hold,
    "kill": lambda: take(signal.SIGKILL),
    "stop": lambda: take(signal.SIGSTOP),
    "close": close,
    "garbage": lambda: write(struct.pack("<I", 8) + b"not json"),
    "oversize": lambda: write(struct.pack("<I", 0xFFFFFFFF)),
    "cut": cut,
    "fail": fail,
    "lose": lose,
    "exit": leave,
    "print": lambda: print("a line on standard output"),
}


def point(operation, segment):
    order = FOLDER / "fault.json"
    if not order.exists():
        return
    fault = json.loads(order.read_text())
    if (fault["operation"], fault["segment"]) == (operation, segment):
        order.unlink()
        ACTS[fault["act"]]()


class FaultyBackend:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        if name not in OPERATIONS:
            return value
        return lambda *args: self._steps(name, value(*args))

    def unload(self, model):
        point("unload", 0)
        self._inner.unload(model)

    def drop(self, model, handle):
        point("drop", 0)
        self._inner.drop(model, handle)

    def _steps(self, operation, inner):
        point(operation, 0)
        count = 0
        try:
            while True:
                try:
                    segment = next(inner)
                except StopIteration as end:
                    return end.value
                count += 1
                point(operation, count)
                yield segment
        finally:
            inner.close()


def main():
    (FOLDER / f"pid-{os.getpid()}").touch()
    without_the_front_door()
    import attrs
    from coresident.runtime.backends.catalog import open_backend
    from coresident.runtime.worker.child import main as serve

    def opener(config):
        opened = open_backend(config)
        point("open", 0)
        return attrs.evolve(opened, backend=FaultyBackend(opened.backend))

    serve(opener, grace=LAST_SECONDS)


if __name__ == "__main__":
    main()
