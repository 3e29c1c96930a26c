"""Traces by their lines: changed and sealed again, or without their messages."""

from __future__ import annotations

import hashlib
import json


def lines_of(path) -> list[dict]:
    """All lines but the last, as JSON objects."""
    return [json.loads(line) for line in path.read_bytes().splitlines()[:-1]]


def without_messages(path) -> list[bytes]:
    """All lines but the last and the message lines, whose digests cover the scores of made-up tokens."""
    lines = path.read_bytes().splitlines(keepends=True)[:-1]
    return [line for line in lines if not line.startswith(b'{"type":"took"')]


def reseal(path, lines) -> None:
    """Write a whole trace of these lines."""
    body = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    end = {"type": "end_of_trace", "events": len(lines) - 1, "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(body + json.dumps({**end, "complete": True}).encode() + b"\n")


def changed(value) -> list:
    """The value with one thing in it changed, in every way that it can be."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, str):
        return [value + "1"]
    if isinstance(value, list):
        places = range(len(value))
        inside = [[*value[:i], other, *value[i + 1 :]] for i in places for other in changed(value[i])]
        return inside + [[*value[:i], *value[i + 1 :]] for i in places]
    inside = [{**value, key: other} for key, old in value.items() for other in changed(old)]
    return inside + [{k: v for k, v in value.items() if k != key} for key in value]
