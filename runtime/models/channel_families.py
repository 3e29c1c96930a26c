"""How model families mark thought, answer and tool calls: tables of data, nothing that runs.

A family has markers (special texts with a signal each) and a table: state and signal to the next state. What the
table does not have is malformed, and ``problem_of`` says how. States: ``outside``, ``answer``, ``thought`` and
``tool_call`` carry content; ``role``, ``label`` and ``format`` are the sections of a header; ``first`` is a header that
only the prompt has begun; ``between`` and ``ended`` carry nothing. Besides the markers' signals there are ``text`` (an
ordinary token where none may stand) and ``says_KIND`` (a header was read).

Sources: the chat templates of Gemma 4, of Qwen 3 and of DeepSeek-R1; for Harmony docs/format.md of openai/harmony.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

Kind: TypeAlias = Literal["thought", "answer", "tool_call"]
Table: TypeAlias = Mapping[tuple[str, str], str]

KINDS: Mapping[str, Kind] = {"outside": "answer", "answer": "answer", "thought": "thought", "tool_call": "tool_call"}
HEADER_STATES = frozenset({"role", "label", "format"})

# A tag opens, a tag closes, and what stands outside of tags is the answer.
TAGS: Table = {
    ("outside", "open_thought"): "thought",
    ("outside", "open_channel"): "label",
    ("label", "says_thought"): "thought",
    ("thought", "close_thought"): "outside",
    ("outside", "open_tool"): "tool_call",
    ("tool_call", "close_tool"): "outside",
    ("outside", "end_turn"): "ended",
}

# Every message has a header that says what it is; the prompt has begun the first one.
MESSAGES: Table = {
    ("first", "text"): "role",
    ("first", "start"): "role",
    ("first", "open_channel"): "label",
    ("first", "end_turn"): "ended",
    ("role", "open_channel"): "label",
    ("label", "constrain"): "format",
    ("label", "says_thought"): "thought",
    ("label", "says_answer"): "answer",
    ("label", "says_tool_call"): "tool_call",
    ("format", "says_thought"): "thought",
    ("format", "says_answer"): "answer",
    ("format", "says_tool_call"): "tool_call",
    ("thought", "end"): "between",
    ("answer", "end"): "between",
    ("tool_call", "end"): "between",
    ("tool_call", "call"): "ended",
    ("answer", "end_turn"): "ended",
    ("between", "start"): "role",
    ("between", "end_turn"): "ended",
}

PROBLEMS: Mapping[str, str] = {
    "closer_without_opener": "a closing marker whose channel is not open",
    "nested_opener": "an opening marker inside an open channel",
    "tool_inside_thought": "a tool call inside a thought",
    "turn_end_inside_channel": "the end of the turn inside an open channel",
    "turn_start_inside_turn": "the start of another turn inside this one",
    "after_turn_end": "output after the end of the turn",
    "text_outside_message": "text between two messages",
    "wrong_label": "a channel whose label the family does not have",
    "malformed_header": "a header that does not follow the family's form",
    "too_long": "more than the limit allows",
    "unterminated": "the end of the output inside an open channel",
}

# What a marker means where no table entry takes it.
MISPLACED: Mapping[str, str] = {
    "open_thought": "nested_opener",
    "open_channel": "nested_opener",
    "open_tool": "nested_opener",
    "start": "nested_opener",
    "close_thought": "closer_without_opener",
    "close_tool": "closer_without_opener",
    "end": "closer_without_opener",
    "call": "closer_without_opener",
    "end_turn": "turn_end_inside_channel",
    "open_turn": "turn_start_inside_turn",
    "body": "malformed_header",
    "constrain": "malformed_header",
}


def problem_of(state: str, signal: str) -> str:
    """What is wrong with ``signal`` in ``state``, as a key of ``PROBLEMS``, where a family's table has no such pair."""
    if state == "ended":
        return "after_turn_end"
    if signal == "text":
        return "text_outside_message"
    if signal.startswith("says_"):
        return "wrong_label"
    if (state, signal) == ("thought", "open_tool"):
        return "tool_inside_thought"
    if state in HEADER_STATES and signal not in ("end_turn", "open_turn"):
        return "malformed_header"
    return MISPLACED[signal]


@attrs.frozen
class Marker:
    """A special text and what it signals. A family without one that is not ``required`` is still available."""

    text: str
    signal: str = attrs.field(validator=attrs.validators.in_(MISPLACED))
    required: bool = True


@attrs.frozen
class Family:
    """One way to mark channels.

    ``starts``: states in which an output may begin, by the name of ``starts_in``. ``labels``: what a channel's label
    says it is; ``tool_labels``: labels of messages that may be addressed to a tool. ``role``: whose messages they are,
    for families whose headers name one; a header without a role is one line. ``spelled``: markers may be spelled in
    ordinary tokens.
    """

    name: str
    table: Table
    markers: tuple[Marker, ...]
    starts: Mapping[str, str]
    labels: Mapping[str, Kind] = attrs.field(factory=dict)
    tool_labels: frozenset[str] = frozenset()
    role: str | None = None
    spelled: bool = False


FAMILIES: Mapping[str, Family] = {
    "gemma4": Family(
        name="gemma4",
        table=TAGS,
        markers=(
            Marker("<|channel>", "open_channel"),
            Marker("<channel|>", "close_thought"),
            Marker("<|tool_call>", "open_tool"),
            Marker("<tool_call|>", "close_tool"),
            Marker("<turn|>", "end_turn"),
            Marker("<|tool_response>", "end_turn", required=False),
            Marker("<|turn>", "open_turn", required=False),
        ),
        starts={"turn": "outside", "thought": "thought"},
        labels={"thought": "thought"},
    ),
    "think": Family(
        name="think",
        table=TAGS,
        markers=(
            Marker("<think>", "open_thought"),
            Marker("</think>", "close_thought"),
            Marker("<tool_call>", "open_tool"),
            Marker("</tool_call>", "close_tool"),
        ),
        starts={"turn": "outside", "thought": "thought"},
        spelled=True,
    ),
    "harmony": Family(
        name="harmony",
        table=MESSAGES,
        markers=(
            Marker("<|start|>", "start"),
            Marker("<|channel|>", "open_channel"),
            Marker("<|constrain|>", "constrain"),
            Marker("<|message|>", "body"),
            Marker("<|end|>", "end"),
            Marker("<|call|>", "call"),
            Marker("<|return|>", "end_turn"),
        ),
        starts={"turn": "first", "thought": "thought", "answer": "answer"},
        labels={"analysis": "thought", "commentary": "answer", "final": "answer"},
        tool_labels=frozenset({"analysis", "commentary"}),
        role="assistant",
    ),
}
