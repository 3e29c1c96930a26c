"""Files that are something else: what they are, by their first bytes."""

from __future__ import annotations

import codecs
import json
from typing import Any

_OURS = b'{"schema":"coresident.trace"'
_MAGICS = (
    (b"\x1f\x8b", "a gzip file; decompress it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file; decompress it first"),
    (b"BZh", "a bzip2 file; decompress it first"),
    (b"PK\x03\x04", "a zip file; unpack it first"),
    (b"PAR1", "a Parquet file"),
    (b"GGUF", "a GGUF model file, not a trace"),
    (b"SQLite format 3", "an SQLite database"),
)
_TABLES = (
    ({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, "an Azure LLM inference trace (CSV)"),
    ({"Timestamp", "Model", "Request tokens", "Response tokens"}, "a BurstGPT trace (CSV)"),
    ({"prompt_size", "token_size", "prompt_time"}, "a Splitwise performance table (CSV)"),
)
_OBJECTS = (
    ({"timestamp", "input_length", "output_length"}, "a Mooncake trace (JSONL)"),
    ({"block_size", "hash_id_scope"}, "a weka agentic coding session (JSON)"),
    ({"request_id", "input_toks", "output_toks"}, "request outcomes of LLMServingSim (JSONL)"),
    ({"prompt_tokens", "completion_tokens"}, "request outcomes of a serving benchmark (JSONL)"),
    ({"traceEvents"}, "a Chrome or Perfetto timeline (JSON)"),
)


def recognise(head: bytes) -> str | None:
    """What a file is that begins with ``head``; ``None`` when it may be a trace of ours (or a part of one)."""
    if not head:
        return "an empty file"
    if head.startswith(_OURS):
        return None
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if b"\x00" in head:
        return "a binary file"
    try:
        # The last character may be cut where ``head`` ends.
        line = codecs.getincrementaldecoder("utf-8")().decode(head).lstrip("\ufeff")
    except UnicodeDecodeError:
        return "a binary file"
    line = line.lstrip("\r\n").split("\n", 1)[0].rstrip("\r")
    if not line.lstrip().startswith("{"):
        return _table(line)
    return _object(line, complete=b"\n" in head)


def _table(line: str) -> str:
    columns = {column.strip().strip('"') for column in line.split(",")}
    for known, name in _TABLES:
        if known <= columns:
            return name
    if len(columns) > 2:
        return f"a CSV file with columns {', '.join(line.split(',')[:6])}"
    return "no JSON: a text file" if line.strip() else "a file without a first line"


def _object(line: str, complete: bool) -> str | None:
    """By the keys of the first line; of a line longer than what was looked at, by the keys that are seen."""
    try:
        data: Any = json.loads(line)
        keys = set(data) if isinstance(data, dict) else set()
    except (ValueError, RecursionError):
        keys = {key for known, _ in _OBJECTS for key in known if f'"{key}"' in line}
        if complete and line.strip() == "{":
            return "a JSON document over several lines"
    if "schema" in keys or (not complete and _OURS.startswith(line.encode())):
        return None
    for known, name in _OBJECTS:
        if known <= keys:
            return name
    return "JSON of another kind" if complete and keys else None
