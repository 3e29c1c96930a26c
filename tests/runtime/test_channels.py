"""What the channel decoder makes of well-formed outputs of every family, of cut ones and of long ones."""

from __future__ import annotations

import pytest
from channel_vocabulary import ids, markers, quoted, run, tokens_of, vocabulary
from coresident.actors.errors import InvalidRequest
from coresident.runtime.models.channel_events import (
    ChannelClosed,
    ChannelEvent,
    ChannelLimits,
    ChannelOpened,
    ChannelTokens,
)
from coresident.runtime.models.channels import ChannelDecoder

CALL = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}<|call|>"

WELL_FORMED = [
    ("gemma4", "Hello", "turn", [("answer", "Hello")]),
    ("gemma4", "<|channel>thought\nhm\n<channel|>Hi<turn|>", "turn", [("thought", "hm\n"), ("answer", "Hi")]),
    ("gemma4", "<|channel>thought\n<channel|>Hi", "turn", [("thought", ""), ("answer", "Hi")]),
    ("gemma4", "<|channel>thought\n\nhm<channel|>", "turn", [("thought", "\nhm")]),
    (
        "gemma4",
        "<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>",
        "turn",
        [("thought", "a"), ("answer", "b"), ("thought", "c")],
    ),
    ("gemma4", "hm<channel|>Hi<turn|>", "thought", [("thought", "hm"), ("answer", "Hi")]),
    (
        "gemma4",
        '<|channel>thought\na<channel|><|tool_call>call:f{x:<|"|>y<|"|>}<tool_call|><|tool_response>',
        "turn",
        [("thought", "a"), ("tool_call", 'call:f{x:<|"|>y<|"|>}')],
    ),
    ("think", "<think>hm</think>Hi<|im_end|>", "turn", [("thought", "hm"), ("answer", "Hi")]),
    ("think", "</think>Hi", "thought", [("thought", ""), ("answer", "Hi")]),
    (
        "think",
        "<think>a</think>b<tool_call>{}</tool_call><tool_call>[]</tool_call>c<think>d</think>",
        "turn",
        [
            ("thought", "a"),
            ("answer", "b"),
            ("tool_call", "{}"),
            ("tool_call", "[]"),
            ("answer", "c"),
            ("thought", "d"),
        ],
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
        "turn",
        [("thought", "hm"), ("answer", "Hi")],
    ),
    ("harmony", "<|start|>assistant<|channel|>final <|constrain|>json<|message|>{}", "turn", [("answer", "{}")]),
    (
        "harmony",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + CALL,
        "turn",
        [("answer", "I look."), ("tool_call", "{}")],
    ),
    ("harmony", "hm<|end|><|start|>assistant" + CALL, "thought", [("thought", "hm"), ("tool_call", "{}")]),
]


def channels(events: list[ChannelEvent], family: str) -> list[tuple[str, str]]:
    """Each channel from its opening to its closing, in order, with its text."""
    said: list[tuple[str, str]] = []
    for place, event in enumerate(events):
        if isinstance(event, ChannelOpened):
            said.append((event.kind, ""))
            assert place == 0 or isinstance(events[place - 1], ChannelClosed)
        elif isinstance(event, ChannelTokens):
            said[-1] = (event.kind, vocabulary(family).decode(event.tokens, special=True))
        assert said[-1][0] == event.kind
    return said


@pytest.mark.parametrize(("family", "text", "starts_in", "expected"), WELL_FORMED)
def test_R57_splits_by_token_id_into_thought_answer_and_tool_call(family, text, starts_in, expected):
    decoder = ChannelDecoder(markers(family), starts_in=starts_in)
    events, error = run(decoder, [ids(family, text)])
    assert error is None
    assert channels(events, family) == expected
    assert events[-1] == ChannelClosed(expected[-1][0])


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.look <|constrain|>json",
        "<|channel|>commentary to=functions.look json",
        " to=functions.look<|channel|>commentary",
        "<|start|>assistant to=functions.look<|channel|>commentary <|constrain|>json",
        "<|channel|>analysis to=functions.look code",
    ],
)
def test_R57_a_harmony_tool_is_named_in_the_role_or_the_channel(header):
    events, error = run(ChannelDecoder(markers("harmony")), [ids("harmony", header + "<|message|>{}<|call|>")])
    assert error is None
    assert events[0] == ChannelOpened("tool_call", "functions.look")


def test_R57_opening_and_closing_show_at_their_own_token():
    decoder = ChannelDecoder(markers("think"))
    opener, thought, closer, answer, end = ids("think", "<think>a</think>b<|im_end|>")
    assert decoder.open_channel is None
    assert decoder.push(opener) == (ChannelOpened("thought"),)
    assert decoder.open_channel == "thought"
    assert decoder.push(thought) == (ChannelTokens("thought", (thought,)),)
    assert decoder.push(closer) == (ChannelClosed("thought"),)
    assert decoder.push(answer) == (ChannelOpened("answer"), ChannelTokens("answer", (answer,)))
    assert decoder.push(end) == (ChannelClosed("answer"),)
    assert decoder.finish() == ()
    assert decoder.statistics().tokens == 5
    assert decoder.statistics().channels == 2


def test_a_cut_thought_is_told_from_a_finished_one_and_is_no_answer():
    decoder = ChannelDecoder(markers("think"))
    events, error = run(decoder, [ids("think", "<think>hm")], allow_open_thought=True)
    assert error is None
    assert events[-1] == ChannelClosed("thought", cut=True)
    assert tokens_of("answer", events) == []


def test_a_cut_header_is_dropped_and_a_cut_tool_call_is_refused():
    events, error = run(ChannelDecoder(markers("gemma4")), [ids("gemma4", "a<|channel>tho")], allow_open_thought=True)
    assert error is None
    assert tokens_of("answer", events) == list(ids("gemma4", "a"))
    _, error = run(ChannelDecoder(markers("gemma4")), [ids("gemma4", "<|tool_call>a")], allow_open_thought=True)
    assert error is not None
    assert error.details["problem"] == "unterminated"


@pytest.mark.parametrize("allowed", [False, True])
def test_a_thought_that_the_prompt_opened_shows_even_when_nothing_follows(allowed):
    events, error = run(ChannelDecoder(markers("think"), starts_in="thought"), [], allow_open_thought=allowed)
    assert (error is None) == allowed
    assert events == ([ChannelOpened("thought"), ChannelClosed("thought", cut=True)] if allowed else [])


@pytest.mark.parametrize(
    ("limits", "family", "text", "found", "limit"),
    [
        # The small vocabulary has a token for every digit and none for two.
        (ChannelLimits(thought_tokens=3), "think", "<think>1</think>b<think>234", "token 4 of thought", 3),
        (ChannelLimits(tool_call_tokens=2), "think", "<tool_call>123", "token 3 of tool_call", 2),
        (ChannelLimits(header_tokens=2), "gemma4", "<|channel>123", "token 3 of a header", 2),
        (ChannelLimits(header_tokens=4), "harmony", "12<|channel|>345", "token 5 of a header", 4),
        (ChannelLimits(channels=2), "think", "<think></think>a<think>", "channel 3", 2),
    ],
)
def test_R59_every_length_is_bounded_and_the_error_has_the_numbers(limits, family, text, found, limit):
    _, error = run(ChannelDecoder(markers(family), limits), [ids(family, text)])
    assert error is not None
    assert (error.details["problem"], error.details["limit"], error.details["found"]) == ("too_long", limit, found)
    assert f"limit {limit}" in str(error)


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_R59_exactly_the_limit_is_allowed(limit):
    thought = quoted("think", "<")[:1] * limit
    (opener, closer) = ids("think", "<think></think>")
    limits = ChannelLimits(thought_tokens=limit)
    events, error = run(ChannelDecoder(markers("think"), limits), [(opener, *thought, closer)])
    assert error is None
    assert tokens_of("thought", events) == list(thought)
    events, error = run(ChannelDecoder(markers("think"), limits), [(opener, *thought, *quoted("think", "<"), closer)])
    assert error is not None
    assert error.details["position"] == 1 + limit
    assert tokens_of("thought", events) == list(thought)


def test_R59_every_header_has_the_whole_limit():
    message = "<|start|>assistant<|channel|>analysis<|message|>"
    longest = len(quoted("harmony", "assistant")) + len(quoted("harmony", "analysis"))
    tokens = [*ids("harmony", message), *ids("harmony", f"<|end|>{message}<|end|>")]
    assert run(ChannelDecoder(markers("harmony"), ChannelLimits(header_tokens=longest)), [tokens])[1] is None
    _, error = run(ChannelDecoder(markers("harmony"), ChannelLimits(header_tokens=longest - 1)), [tokens])
    assert error is not None
    assert error.details["problem"] == "too_long"


@pytest.mark.parametrize(
    "wrong", [{"thought_tokens": -1}, {"tool_call_tokens": True}, {"header_tokens": 0}, {"channels": 1.5}]
)
def test_R59_limits_without_meaning_are_refused(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        ChannelLimits(**wrong)


def test_misuse_is_the_callers_error_and_changes_nothing():
    decoder = ChannelDecoder(markers("think"))
    with pytest.raises(InvalidRequest, match="-1"):
        decoder.push_many([5, -1])
    assert decoder.statistics().tokens == 0
    decoder.finish()
    with pytest.raises(InvalidRequest, match="finished"):
        decoder.push(5)
    with pytest.raises(InvalidRequest, match="starts_in"):
        ChannelDecoder(markers("think"), starts_in="tool_call")
