"""Channel events as text: whole characters, each in its own channel."""

from __future__ import annotations

from channel_vocabulary import ids, markers, vocabulary
from coresident.runtime.models.channel_events import ChannelClosed, ChannelOpened, ChannelTokens
from coresident.runtime.models.channel_markers import Markers
from coresident.runtime.models.channel_text import ChannelPiece, ChannelText
from coresident.runtime.models.channels import ChannelDecoder
from coresident.runtime.models.tokenizer import ByteTokenizer
from hypothesis import given
from hypothesis import strategies as st

# The spelled tags of a byte tokenizer begin with "<", which these texts leave out.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=12)


@given(thought=TEXT, answer=TEXT, call=TEXT)
def test_R57_each_channel_has_its_own_text(thought, answer, call):
    decoder, text = ChannelDecoder(Markers.of("think", ByteTokenizer())), ChannelText(ByteTokenizer())
    said = {"thought": "", "answer": "", "tool_call": ""}
    stream = f"<think>{thought}</think>{answer}<tool_call>{call}</tool_call>".encode()
    for events in [*map(decoder.push, stream), decoder.finish()]:
        for event in text.push(events):
            if isinstance(event, ChannelPiece):
                assert event.text
                said[event.kind] += event.text
    assert said == {"thought": thought, "answer": answer, "tool_call": call}


def test_R61_half_a_character_stays_in_its_channel():
    decoder, text = ChannelDecoder(Markers.of("think", ByteTokenizer())), ChannelText(ByteTokenizer())
    euro = "\u20ac".encode()
    events = decoder.push_many(b"<think>a" + euro[:2] + b"</think>" + euro[2:] + b"b")
    assert text.push((*events, *decoder.finish())) == (
        ChannelOpened("thought"),
        ChannelPiece("thought", "a"),
        ChannelPiece("thought", "\ufffd"),
        ChannelClosed("thought"),
        ChannelOpened("answer"),
        ChannelPiece("answer", "\ufffdb"),
        ChannelClosed("answer"),
    )


def test_R57_special_tokens_have_text_in_tool_calls_only():
    tokenizer = vocabulary("gemma4")
    decoder, text = ChannelDecoder(markers("gemma4")), ChannelText(tokenizer)
    events = decoder.push_many(ids("gemma4", 'a<|"|>b<|tool_call>f{x:<|"|>y<|"|>}<tool_call|>'))
    pieces = [event for event in text.push(events) if isinstance(event, ChannelPiece)]
    assert pieces == [ChannelPiece("answer", "ab"), ChannelPiece("tool_call", 'f{x:<|"|>y<|"|>}')]
    assert any(isinstance(event, ChannelTokens) for event in events)
