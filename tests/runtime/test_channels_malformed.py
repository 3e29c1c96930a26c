"""Outputs that break their family's rules: what is wrong is told, and every state is tried with every marker."""

from __future__ import annotations

import pytest
from channel_vocabulary import ids, markers, quoted, run, tokens_of
from coresident.runtime.models.channel_events import MalformedChannels
from coresident.runtime.models.channel_families import FAMILIES, MISPLACED, PROBLEMS
from coresident.runtime.models.channel_markers import Markers
from coresident.runtime.models.channels import ChannelDecoder
from coresident.runtime.models.tokenizer import ByteTokenizer

CALL = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}<|call|>"

MALFORMED = [
    ("gemma4", "a<channel|>", "closer_without_opener", 1),
    ("gemma4", "<tool_call|>", "closer_without_opener", 0),
    ("gemma4", "<|channel>thought\na<tool_call|>", "closer_without_opener", None),
    ("gemma4", "<|channel>thought\na<|channel>thought\n", "nested_opener", None),
    ("gemma4", "<|tool_call>a<|tool_call>", "nested_opener", 2),
    ("gemma4", "<|tool_call><|channel>", "nested_opener", 1),
    ("gemma4", "<|channel>thought\na<|tool_call>", "tool_inside_thought", None),
    ("gemma4", "<|channel>thought\na<turn|>", "turn_end_inside_channel", None),
    ("gemma4", "<|channel>tho<turn|>", "turn_end_inside_channel", None),
    ("gemma4", "<|tool_call>a<|tool_response>", "turn_end_inside_channel", 2),
    ("gemma4", "<|channel>answer\n", "wrong_label", None),
    ("gemma4", "<|channel>thoughts\n", "wrong_label", None),
    ("gemma4", "<|channel>thought too\n", "malformed_header", None),
    ("gemma4", "<|channel>\n", "malformed_header", None),
    ("gemma4", "<|channel>thought<channel|>", "malformed_header", None),
    ("gemma4", "a<|turn>user", "turn_start_inside_turn", 1),
    ("gemma4", "a<turn|>b", "after_turn_end", 2),
    ("gemma4", "a<turn|><turn|>", "after_turn_end", 2),
    ("think", "</think>", "closer_without_opener", 0),
    ("think", "<think><think>", "nested_opener", 1),
    ("think", "<think><tool_call>", "tool_inside_thought", 1),
    ("think", "<think>a<|im_end|>", "turn_end_inside_channel", 2),
    ("think", "<tool_call><|im_end|>", "turn_end_inside_channel", 1),
    ("harmony", "<|channel|>?? <|message|>", "malformed_header", None),
    ("harmony", "<|channel|>commentary?<|message|>", "malformed_header", None),
    ("harmony", "<|channel|>commentary 2?<|message|>", "malformed_header", None),
    ("harmony", "<|channel|>commentary to=assistant<|channel|>commentary", "malformed_header", None),
    ("harmony", "<|channel|>commentary to=assistant<|message|>", "malformed_header", None),
    ("harmony", "<|channel|>commentary to=<|message|>", "malformed_header", None),
    ("harmony", " to=f<|channel|>commentary to=g<|message|>", "malformed_header", None),
    ("harmony", "<|channel|>final to=functions.look<|message|>", "malformed_header", None),
    ("harmony", "<|channel|>final json<|constrain|>json<|message|>", "malformed_header", None),
    ("harmony", "<|channel|>final<|constrain|><|message|>", "malformed_header", None),
    ("harmony", "<|channel|><|message|>", "malformed_header", 1),
    ("harmony", "<|channel|>secret<|message|>", "wrong_label", None),
    ("harmony", "<|start|>user<|channel|>final<|message|>", "malformed_header", None),
    ("harmony", "<|start|><|channel|>final<|message|>", "malformed_header", None),
    ("harmony", "<|message|>a", "malformed_header", 0),
    ("harmony", "I cannot help.<|end|>", "malformed_header", None),
    ("harmony", "<|channel|>analysis<|message|>a<|return|>", "turn_end_inside_channel", None),
    ("harmony", "<|channel|>analysis<|message|>a<|call|>", "closer_without_opener", None),
    ("harmony", "<|channel|>analysis<|message|>a<|channel|>", "nested_opener", None),
    ("harmony", "<|channel|>analysis<|message|>a<|end|><|end|>", "closer_without_opener", None),
    ("harmony", "<|channel|>analysis<|message|>a<|end|>b", "text_outside_message", None),
    ("harmony", "<|channel|>analysis<|message|><|message|>", "malformed_header", None),
    ("harmony", CALL + "<|start|>", "after_turn_end", None),
    ("harmony", "a", "unterminated", None),
    ("gemma4", "<|channel>thought\na", "unterminated", None),
    ("gemma4", "<|channel>thou", "unterminated", None),
    ("gemma4", "<|tool_call>a", "unterminated", None),
    ("think", "<think>a", "unterminated", 2),
]


@pytest.mark.parametrize(("family", "text", "problem", "position"), MALFORMED)
def test_R58_malformed_output_is_rejected_by_what_is_wrong(family, text, problem, position):
    decoder = ChannelDecoder(markers(family))
    _, error = run(decoder, [ids(family, text)])
    assert error is not None
    assert (error.details["problem"], error.details["family"]) == (problem, family)
    assert PROBLEMS[problem] in str(error)
    if position is not None:
        assert error.details["position"] == position


def test_R58_the_error_says_what_was_found_and_what_was_open():
    _, error = run(ChannelDecoder(markers("think")), [ids("think", "<think>a<tool_call>")])
    assert error is not None
    assert error.details == {
        "problem": "tool_inside_thought",
        "family": "think",
        "position": 2,
        "found": "<tool_call>",
        "open_channel": "thought",
        "limit": None,
    }
    _, error = run(ChannelDecoder(markers("gemma4")), [ids("gemma4", "<|channel>secret\n")])
    assert error is not None
    assert "secret" in error.details["found"]
    assert error.details["open_channel"] == "header"


def test_R58_positions_count_every_token_of_a_spelled_marker():
    tokenizer = ByteTokenizer()
    stream = tokenizer.encode("<think>ab</think>c</think>")
    _, error = run(ChannelDecoder(Markers.of("think", tokenizer)), [stream])
    assert error is not None
    assert (error.details["problem"], error.details["position"]) == ("closer_without_opener", 18)


@pytest.mark.parametrize("family", ["gemma4", "think"])
def test_R58_a_closing_tag_that_is_only_quoted_is_text(family):
    opener, closer = {
        "gemma4": ("<|channel>thought\n", "<channel|>"),
        "think": ("<think>", "</think>"),
    }[family]
    quote = quoted(family, f"it ends at {closer}, they say")
    tokens = (*ids(family, opener), *quote, *ids(family, closer), *quote)
    events, error = run(ChannelDecoder(markers(family)), [tokens])
    assert error is None
    assert tokens_of("thought", events) == list(quote)
    assert tokens_of("answer", events) == list(quote)


# How to come to each state of a family, from the start of a turn.
WAYS = {
    "gemma4": {
        "outside": "",
        "label": "<|channel>",
        "thought": "<|channel>thought\n",
        "tool_call": "<|tool_call>",
        "ended": "<turn|>",
    },
    "think": {
        "outside": "",
        "thought": "<think>",
        "tool_call": "<tool_call>",
        "ended": "<|im_end|>",
    },
    "harmony": {
        "first": "",
        "role": "<|start|>",
        "label": "<|channel|>",
        "format": "<|channel|>final<|constrain|>",
        "thought": "<|channel|>analysis<|message|>",
        "answer": "<|channel|>final<|message|>",
        "tool_call": "<|channel|>commentary to=f<|message|>",
        "between": "<|channel|>final<|message|><|end|>",
        "ended": "<|channel|>final<|message|><|return|>",
    },
}


@pytest.mark.parametrize(
    ("family", "state", "marker"),
    [
        (family, state, marker)
        for family, ways in WAYS.items()
        for state in ways
        for marker in FAMILIES[family].markers
        if marker.signal != "body"
    ],
)
def test_R58_every_state_takes_the_markers_of_its_table_and_no_other(family, state, marker):
    decoder = ChannelDecoder(markers(family))
    decoder.push_many(ids(family, WAYS[family][state]))
    assert decoder.state == state
    after = FAMILIES[family].table.get((state, marker.signal))
    (token,) = ids(family, marker.text)
    if after is not None:
        decoder.push(token)
        assert decoder.state == after
    else:
        with pytest.raises(MalformedChannels) as caught:
            decoder.push(token)
        assert caught.value.details["found"] == marker.text
        assert decoder.state == state


@pytest.mark.parametrize("family", FAMILIES)
def test_R58_the_ways_visit_every_state_that_an_output_can_reach(family):
    found = FAMILIES[family]
    signals = {marker.signal for marker in found.markers} | {"text", "says_thought", "says_answer", "says_tool_call"}
    # Stop tokens end the turn in every family.
    signals.add("end_turn")
    reached = {found.starts["turn"]}
    for _ in found.table:
        reached |= {after for (state, signal), after in found.table.items() if state in reached and signal in signals}
    assert set(WAYS[family]) == reached
    assert {signal for _, signal in found.table} <= {*MISPLACED, *signals}
