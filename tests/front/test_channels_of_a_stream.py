"""Thought, answer and tool calls at the front door: apart, typed when malformed, and the answer free of thoughts."""

from __future__ import annotations

import pytest
from coresident.actors.events import GenerationEnded
from hypothesis import given
from hypothesis import strategies as st

from coresident import InvalidRequest, MalformedChannels, SamplingParams, ToolCall, open_scheduler
from coresident.sinks import make_sink
from support.live import config, run
from support.saying import Saying, says, speaking, tokenizer_of

WELL_FORMED = {
    "gemma4": (
        '<|channel>thought\nLet me see.<channel|>It is 4.<|tool_call>call:f{x:<|"|>y<|"|>}<tool_call|><turn|>',
        "Let me see.",
        "It is 4.",
        (ToolCall('call:f{x:<|"|>y<|"|>}'),),
        "stop_token",
    ),
    "think": (
        "<think>Let me see.</think>It is 4.<tool_call>{1}</tool_call><tool_call>{2}</tool_call>",
        "Let me see.",
        "It is 4.",
        (ToolCall("{1}"), ToolCall("{2}")),
        "length",
    ),
    "harmony": (
        "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.f<|message|>{"x": 1}<|call|>',
        "Let me see.",
        "It is 4.",
        (ToolCall('{"x": 1}', "functions.f"),),
        "stop_token",
    ),
}
ONE = SamplingParams(seed=1)
OTHER = SamplingParams(seed=2)


def stream_of(scheduler, family: str, tokens, **options):
    return scheduler.generate("Hi", sampling=ONE, max_tokens=len(tokens), channels=family, **options)


async def heard(stream):
    """The pieces of a stream and its result, or the error it ends with, however it is asked."""
    pieces = []
    async with stream:
        try:
            async for piece in stream:
                pieces.append(piece)  # noqa: PERF401 (a comprehension would lose the pieces before the error)
            return pieces, await stream.result()
        except MalformedChannels as error:
            failure = error
        with pytest.raises(MalformedChannels) as again:
            await stream.result()
    assert again.value == failure
    return pieces, failure


def text(kind: str, pieces) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def said_by(family: str, output: str, monkeypatch, **options):
    """What one scripted output comes to, with its sampler; the scheduler serves the next request afterwards."""

    async def main():
        tokens = tokenizer_of(family).encode(output)
        (sampler,) = says(monkeypatch, tokens)
        async with speaking(family) as desk:
            pieces, end = await heard(stream_of(desk.scheduler, family, tokens, **options))
            await desk.settled()
            assert (await desk.scheduler.generate("Hi", max_tokens=2)).outcome == "completed"
        return pieces, end, sampler

    return run(main)


@pytest.mark.parametrize("family", WELL_FORMED)
def test_R57_a_stream_comes_apart_by_family(family, monkeypatch):
    output, thought, answer, calls, reason = WELL_FORMED[family]
    pieces, result, sampler = said_by(family, output, monkeypatch)
    assert (result.thought, result.answer, result.tool_calls) == (thought, answer, calls)
    assert (result.text, result.reason, result.thought_cut) == (answer, reason, False)
    assert (text("thought", pieces), text("answer", pieces)) == (thought, answer)
    assert text("tool_call", pieces) == "".join(call.text for call in calls)
    assert result.tokens == tuple(sampler.tokens)
    assert result.first_token_ns is not None


def test_R57_a_thought_that_the_prompt_opened(monkeypatch):
    _, result, _ = said_by("think", "quietly</think>aloud", monkeypatch, open_thought=True)
    assert (result.thought, result.answer) == ("quietly", "aloud")


def test_R57_without_channels_markers_are_text(monkeypatch):
    async def main():
        says(monkeypatch, b"<think>a</think>b")
        async with speaking() as desk:
            pieces, result = await heard(desk.scheduler.generate("Hi", sampling=ONE, max_tokens=17))
            assert (result.text, result.thought, result.tool_calls) == ("<think>a</think>b", "", ())
            assert {piece.kind for piece in pieces} == {"answer"}

    run(main)


@pytest.mark.parametrize(
    ("family", "problem", "output"),
    [
        ("gemma4", "closer_without_opener", "hello<channel|>SECRET"),
        ("gemma4", "nested_opener", "hello<|channel>thought\nSECRET<|channel>thought\nSECRET"),
        ("gemma4", "tool_inside_thought", "hello<|channel>thought\nSECRET<|tool_call>SECRET"),
        ("gemma4", "turn_end_inside_channel", "hello<|channel>thought\nSECRET<turn|>"),
        ("gemma4", "wrong_label", "hello<|channel>answer\nSECRET"),
        ("think", "closer_without_opener", "hello</think>SECRET"),
        ("think", "nested_opener", "hello<think>SECRET<think>SECRET"),
        ("think", "tool_inside_thought", "hello<think>SECRET<tool_call>SECRET"),
        ("harmony", "text_outside_message", "<|channel|>final<|message|>hello<|end|>SECRET"),
        ("harmony", "nested_opener", "<|channel|>final<|message|>hello<|start|>SECRET"),
    ],
)
def test_R58_R61_malformed_output_ends_at_once_typed_and_leaks_nothing(family, problem, output, monkeypatch):
    pieces, error, sampler = said_by(family, output + "y" * 60, monkeypatch)
    assert (type(error), error.details["problem"], error.details["family"]) == (MalformedChannels, problem, family)
    assert text("answer", pieces) == "hello"
    assert "SECRET" not in text("tool_call", pieces)
    assert sampler.said <= len(tokenizer_of(family).encode(output)), "not one token was sampled after it showed"
    assert [piece.token for piece in pieces if piece.token is not None] == list(sampler.tokens[: sampler.said])


def test_R59_a_header_is_bounded(monkeypatch):
    output = "<|channel|>" + "analysis" * 40
    pieces, error, sampler = said_by("harmony", output, monkeypatch)
    assert (error.details["problem"], error.details["limit"]) == ("too_long", 64)
    assert sampler.said < 80
    assert "".join(piece.text for piece in pieces) == ""


def test_R60_decisions_that_cut_the_decode_steps_change_no_piece(monkeypatch):
    output = WELL_FORMED["think"][0]

    async def main():
        says(monkeypatch, output.encode(), output.encode())
        async with speaking() as desk:
            alone, _ = await heard(stream_of(desk.scheduler, "think", output))
            cut = []
            stream = desk.scheduler.generate("Hi", sampling=OTHER, max_tokens=len(output), channels="think")
            async with stream:
                async for piece in stream:
                    cut.append(piece)
                    if len(cut) % 9 == 1:
                        assert (await desk.scheduler.decide("Food?", ["a"])).outcome == "completed"
            assert cut == alone

    run(main)


def test_R61_the_other_request_of_the_same_steps_goes_on(monkeypatch):
    good, bad = b"<think>a</think>" + b"b" * 60, b"<think>SECRET<think>" + b"c" * 60

    async def main():
        says(monkeypatch, good, bad)
        async with speaking() as desk:
            other = desk.scheduler.generate("Ho", sampling=OTHER, max_tokens=len(bad), channels="think")
            async with stream_of(desk.scheduler, "think", good) as stream, other:
                with pytest.raises(MalformedChannels):
                    await other.result()
                result = await stream.result()
            assert (result.thought, result.answer) == ("a", "b" * 60)

    run(main)


def test_R61_an_output_cut_by_its_length(monkeypatch):
    _, result, _ = said_by("think", "<think>half a thou", monkeypatch)
    assert (result.thought, result.answer, result.thought_cut, result.reason) == ("half a thou", "", True, "length")
    _, error, _ = said_by("think", "a<tool_call>{half", monkeypatch)
    assert error.details["problem"] == "unterminated"
    _, result, _ = said_by("think", "a</thi", monkeypatch)
    assert (result.answer, result.thought_cut) == ("a</thi", False)


def test_R61_a_cancelled_tool_call_is_no_tool_call_and_no_fault(monkeypatch):
    output = b"a<tool_call>{1}</tool_call><tool_call>{" + b"2" * 300

    async def main():
        says(monkeypatch, output)
        async with speaking() as desk:
            hold = desk.backend.hold("decode", skip=60)
            async with stream_of(desk.scheduler, "think", output) as stream:
                await hold.reached()
                stream.cancel()
                hold.release()
                result = await stream.result()
            assert (result.outcome, result.answer, result.tool_calls) == ("cancelled", "a", (ToolCall("{1}"),))
            await desk.settled()

    run(main)


def test_R57_stop_strings_are_looked_for_in_the_answer_only(monkeypatch):
    _, result, _ = said_by("think", "<think>no STOP yet</think>an answer STOP more", monkeypatch, stop=["STOP"])
    assert (result.thought, result.answer, result.reason) == ("no STOP yet", "an answer ", "stop_string")


def test_R57_the_end_of_a_turn_ends_the_stream_also_where_it_is_no_stop_token(monkeypatch):
    _, result, _ = said_by("gemma4", "a<|tool_call>f{}<tool_call|><|tool_response>never", monkeypatch)
    assert (result.answer, result.tool_calls, result.reason) == ("a", (ToolCall("f{}"),), "stop_token")


def test_R58_R61_a_stop_token_that_is_no_marker_ends_the_output_where_it_stands():
    def sink_after(output: bytes):
        sink, pieces = make_sink(tokenizer_of("think"), (), frozenset(b"\n"), "think", False), []
        script = Saying(output)
        for _ in output[:-1]:
            assert sink.take(script.sample(None), pieces.append) is None
        return sink, script, pieces

    sink, script, pieces = sink_after(b"<think>a</think>b</th\n")
    assert sink.take(script.sample(None), pieces.append) == "stop_token"
    assert (text("thought", pieces), text("answer", pieces)) == ("a", "b</th")
    sink, script, pieces = sink_after(b"<think>a</th\n")
    with pytest.raises(MalformedChannels, match="the end of the output inside an open channel"):
        sink.take(script.sample(None), pieces.append)
    assert (text("thought", pieces), text("answer", pieces)) == ("a</th", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"open_thought": True}, "open_thought is True without channels"),
        ({"channels": "gpt"}, "channels is 'gpt'; the families are gemma4, think, harmony"),
        ({"channels": "gemma4"}, "which the tokenizer bytes does not have"),
        ({"channels": "think", "ignore_stop_tokens": True}, "ignore_stop_tokens is True with channels think"),
    ],
)
def test_channels_that_cannot_be_are_refused(options, message):
    async def main():
        async with open_scheduler(config()) as scheduler:
            with pytest.raises(InvalidRequest, match=message):
                scheduler.generate("Hello", **options)

    run(main)


PART = st.text("ab\u20ac #", max_size=8)


@given(stretches=st.lists(st.tuples(st.sampled_from(["think", "tool_call", ""]), PART), max_size=8))
def test_R60_R61_a_sink_shows_each_stretch_under_its_own_kind(stretches):
    """Against an oracle that cuts text, not tokens: a stop string counts inside one stretch of the answer."""
    merged: list[list[str]] = []
    for tag, part in stretches:
        if merged and not tag and not merged[-1][0]:
            merged[-1][1] += part
        else:
            merged.append([tag, part])
    kinds = {"think": "thought", "tool_call": "tool_call", "": "answer"}
    output, stopped, shown = "", False, dict.fromkeys(kinds.values(), "")
    for tag, part in merged:
        output += f"<{tag}>{part}</{tag}>" if tag else part
        if not stopped:
            stopped = not tag and "b#" in part
            shown[kinds[tag]] += part.partition("b#")[0] if stopped else part
    sink = make_sink(tokenizer_of("think"), ["b#"], frozenset(), "think", False)
    pieces: list = []
    script = Saying(output.encode())
    reason = next(filter(None, (sink.take(script.sample(None), pieces.append) for _ in script.tokens)), None)
    assert (reason == "stop_string") == stopped
    sink.rest(GenerationEnded("g", "completed", reason or "length", 2, 0, 2, script.said), pieces.append)
    assert {kind: text(kind, pieces) for kind in shown} == shown
    assert [piece.token for piece in pieces if piece.token is not None] == list(script.tokens[: script.said])
