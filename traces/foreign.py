"""Files that are something else: what they are, by their first bytes."""

from __future__ import annotations

import codecs
import json
from typing import Any

import attrs

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


@attrs.frozen
class Foreign:
    """What a file is, in words, and the format by which it can be imported, if it can."""

    what: str
    importable: str = ""

    @property
    def advice(self) -> str:
        """What to do with it; empty when nothing can be done."""
        return f"import it first: coresident import {self.importable} INPUT OUTPUT" if self.importable else ""


_TABLES = (
    ({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, Foreign("an Azure LLM inference trace (CSV)", "azure")),
    ({"Timestamp", "Model", "Request tokens", "Response tokens"}, Foreign("a BurstGPT trace (CSV)", "burstgpt")),
    ({"prompt_size", "token_size", "prompt_time"}, Foreign("a Splitwise performance table (CSV)")),
)
_OBJECTS = (
    ({"chat_id", "parent_chat_id", "input_length"}, Foreign("a Qwen-Bailian trace (JSONL)", "bailian")),
    ({"timestamp", "input_length", "output_length"}, Foreign("a Mooncake trace (JSONL)", "mooncake")),
    ({"block_size", "hash_id_scope"}, Foreign("a weka agentic coding session (JSON)", "weka")),
    ({"request_id", "input_toks", "output_toks"}, Foreign("request outcomes of vLLM or LLMServingSim (JSONL)", "vllm")),
    ({"prompt_tokens", "completion_tokens"}, Foreign("request outcomes of a serving benchmark (JSONL)")),
    ({"traceEvents"}, Foreign("a Chrome or Perfetto timeline (JSON)")),
)


def recognise(head: bytes) -> Foreign | None:
    """What a file is that begins with ``head``; ``None`` when it may be a trace of ours (or a part of one)."""
    if not head:
        return Foreign("an empty file")
    if head.startswith(_OURS):
        return None
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return Foreign(name)
    if b"\x00" in head:
        return Foreign("a binary file")
    try:
        # The last character may be cut where ``head`` ends.
        line = codecs.getincrementaldecoder("utf-8")().decode(head).lstrip("\ufeff")
    except UnicodeDecodeError:
        return Foreign("a binary file")
    line = line.lstrip("\r\n").split("\n", 1)[0].rstrip("\r")
    if not line.lstrip().startswith("{"):
        return _table(line)
    return _object(line, complete=b"\n" in head)


def _table(line: str) -> Foreign:
    columns = {column.strip().strip('"') for column in line.split(",")}
    for known, foreign in _TABLES:
        if known <= columns:
            return foreign
    if len(columns) > 2 or (len(columns) == 2 and " " not in line):
        return Foreign(f"a CSV file with columns {', '.join(line.split(',')[:6])}")
    return Foreign("a text file" if line.strip() else "a file without a first line")


def _object(line: str, complete: bool) -> Foreign | None:
    """By the keys of the first line; of a line longer than what was looked at, by the keys that are seen."""
    try:
        data: Any = json.loads(line)
        keys = set(data) if isinstance(data, dict) else set()
    except (ValueError, RecursionError):
        keys = {key for known, _ in _OBJECTS for key in known if f'"{key}"' in line}
        if complete and line.strip() == "{":
            return Foreign("a JSON document over several lines")
    if "schema" in keys or (not complete and _OURS.startswith(line.encode())):
        return None
    for known, foreign in _OBJECTS:
        if known <= keys:
            return foreign
    return Foreign("JSON of another kind") if complete and keys else None
