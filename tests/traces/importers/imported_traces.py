"""Small sources of every format, and what an import of them holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coresident.traces.events_workload import ArriveGeneration
from coresident.traces.importers import Settings, import_trace
from coresident.traces.reader import TraceReader

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 27, "input_length": 1024, "output_length": 7, "hash_ids": [0, 1]}\n'
    '{"timestamp": 27, "input_length": 600, "output_length": 1, "hash_ids": [0, 3]}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n"
    "2024-05-10 02:00:00.010000+02:00,2399,6\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45.5,GPT-4,1087,0,1087,API log\n"
    "45.5,ChatGPT,10,1,11,API log\n"
)
BURSTGPT_SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "10.0,one,43,GPT-4,70,9,79,Conversation log\n"
    "20.0,,2,GPT-4,50,9,59,API log\n"
    "90.0,one,3,GPT-4,140,9,149,Conversation log\n"
)
BAILIAN = (
    '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.114, "input_length": 20, "output_length": 3, "type": "text",'
    ' "turn": 1, "hash_ids": [7, 8]}\n'
    '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 61.5, "input_length": 40, "output_length": 4, "type": "text",'
    ' "turn": 2, "hash_ids": [7, 9, 10]}\n'
    '{"chat_id": 3, "parent_chat_id": 99, "timestamp": 62, "input_length": 16, "output_length": 4, "type": "search",'
    ' "turn": 2, "hash_ids": [7]}\n'
)
VLLM = (
    '{"request_id": "a", "input_toks": 100, "output_toks": 4, "arrival_time": 1787267980.08, "queued_ts": 27536.5,'
    ' "scheduled_ts": 27536.6, "first_token_ts": 27537.0, "last_token_ts": 27538.000000001}\n'
    '{"request_id": "b", "input_toks": 30, "output_toks": 1, "arrival_time": 1787267980.09, "queued_ts": 27536.75,'
    ' "scheduled_ts": 27536.75, "first_token_ts": 27537.5, "last_token_ts": 27537.5}\n'
)


def asked(t, tokens, ids, api_time=2.0, model="large", out=3, **more):
    """A request of a weka session."""
    fields = {"t": t, "type": "n", "model": model, "in": tokens, "out": out, "hash_ids": ids, "stop": "end_turn"}
    return fields | ({} if api_time is None else {"api_time": api_time}) | more


def session(name="s", **fields):
    """A weka session: a turn, a sub-agent that it starts, and a turn with the result of that."""
    helper = {"t": 30.0, "type": "subagent", "agent_id": "helper", "duration_ms": 27500, "system_tokens": 100}
    helper["requests"] = [
        asked(0.0, 130, [50, 51], model="small"),
        asked(9.5, 200, [50, 51, 52], 12.25, model="small", type="s", ttft=0.5),
    ]
    whole = {"id": name, "models": ["large", "small"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 60}
    whole["requests"] = [asked(0.0, 200, [1, 2, 3]), helper, asked(40.0, 330, [1, 2, 3, 4, 5], None, stop="")]
    return whole | fields


WEKA = json.dumps(session())
SMALL = {
    "mooncake": MOONCAKE,
    "azure": AZURE,
    "burstgpt": BURSTGPT,
    "bailian": BAILIAN,
    "weka": WEKA,
    "vllm": VLLM,
}


def imported(folder, name, text, **settings):
    """Import a text; the header, the events and the summary."""
    source = folder / f"source.{name}"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    summary = import_trace(name, source, folder / "out.jsonl", Settings(**settings))
    header, events = read(folder / "out.jsonl")
    return header, events, summary


def read(path):
    with TraceReader(path) as reader:
        return reader.header, list(reader)


def arrivals(events):
    return [event for event in events if isinstance(event, ArriveGeneration)]


def public(name):
    """A public trace beside the checkout, or the test is skipped."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not in a folder shared/traces beside the checkout")
    return path
