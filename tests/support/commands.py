"""What the command line's tests share: configurations, and how a command ended."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from coresident.traces.codec import encode
from coresident.traces.format import EndOfTrace

SMALL = """
[device]
partition = "64 MiB"
workspace = "8 MiB"
[generation]
model = "synthetic"
context = 2048
retained = "4 MiB"
"""
ENDLESS = """
[device]
partition = "128 MiB"
workspace = "16 MiB"
[generation]
model = "synthetic"
context = 60000
retained = "4 MiB"
"""
WAIT_S = 60


@attrs.frozen
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def read_until(process: subprocess.Popen[bytes], mark: bytes) -> bytes:
    """Read stdout up to and with ``mark``; fails the test at the end of the stream."""
    seen = b""
    assert process.stdout is not None
    while not seen.endswith(mark):
        byte = process.stdout.read(1)
        if not byte:
            assert process.stderr is not None
            pytest.fail(f"the command ended before it said {mark!r}: {seen!r} {process.stderr.read()!r}")
        seen += byte
    return seen


def write_trace(path: Path, lines: Sequence[bytes]) -> Path:
    """A whole trace of a header and events, sealed; its path."""
    body = b"".join(lines)
    path.write_bytes(body + encode(EndOfTrace(len(lines) - 1, hashlib.sha256(body).hexdigest(), True)))
    return path
