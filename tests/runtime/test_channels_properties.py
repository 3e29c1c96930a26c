"""What holds for any stream of tokens whatever: splits, failures, memory, and that no thought becomes an answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import pytest
from channel_vocabulary import ids, markers, run, tokens_of
from coresident.runtime.models.channel_events import (
    ChannelEvent,
    ChannelLimits,
    ChannelOpened,
    ChannelTokens,
    MalformedChannels,
)
from coresident.runtime.models.channel_families import FAMILIES, PROBLEMS
from coresident.runtime.models.channel_markers import Markers
from coresident.runtime.models.channels import ChannelDecoder
from hypothesis import given
from hypothesis import strategies as st

LETTERS = {1: b"a", 2: b"b", 3: b"c"}
# Spellings over three letters that begin alike, overlap themselves and lie inside one another.
SPELLED = Markers(
    FAMILIES["think"],
    dict(zip([(1, 1, 2), (1, 2, 1, 2), (2, 2), (1, 3, 2, 2)], FAMILIES["think"].markers, strict=True)),
    LETTERS.__getitem__,
)
LIMITS = ChannelLimits(thought_tokens=6, tool_call_tokens=4, header_tokens=8, channels=5)
WORDS = {
    "gemma4": ["<|channel>thought\n", "thought\n", "thought\n\n", "x", "y", "\n", "answer\n"],
    "think": ["<think>x</think>", "x", "\n", "\u00e9"],
    "harmony": [
        "<|channel|>analysis<|message|>",
        "<|channel|>commentary to=functions.x<|message|>",
        "<|channel|>final<|message|>x",
        "<|end|><|start|>assistant",
        " to=functions.x",
        "assistant",
        " json",
        "x",
        "y",
    ],
}
SOUP = {
    family: st.lists(
        st.sampled_from([marker.text for marker in FAMILIES[family].markers] + words).map(
            lambda text, family=family: ids(family, text)
        ),
        max_size=24,
    ).map(lambda parts: [token for part in parts for token in part])
    for family, words in WORDS.items()
}
SOUP["spelled"] = st.lists(st.integers(1, 3), max_size=40)
STARTS = st.sampled_from(["turn", "thought"])
ALL = pytest.mark.parametrize("family", SOUP)


def decoder_of(family: str, starts_in: str, limits: ChannelLimits = LIMITS) -> ChannelDecoder:
    return ChannelDecoder(SPELLED if family == "spelled" else markers(family), limits, starts_in=starts_in)


def cut(tokens: Sequence[int], places: Sequence[int]) -> list[Sequence[int]]:
    edges = sorted({0, len(tokens), *(place % (len(tokens) + 1) for place in places)})
    return [tokens[start:end] for start, end in pairwise(edges)]


@ALL
@given(data=st.data(), starts_in=STARTS, places=st.lists(st.integers(0, 100), max_size=6), allowed=st.booleans())
def test_R60_every_split_of_a_stream_gives_the_same(family, data, starts_in, places, allowed):
    tokens = data.draw(SOUP[family])
    one = decoder_of(family, starts_in)
    expected = run(one, [[token] for token in tokens], allow_open_thought=allowed)
    for pieces in ([tokens], cut(tokens, places), [[], *cut(tokens, places), []]):
        other = decoder_of(family, starts_in)
        assert run(other, pieces, allow_open_thought=allowed) == expected
        assert other.statistics() == one.statistics()


@ALL
@given(data=st.data(), starts_in=STARTS)
def test_R61_after_a_failure_nothing_comes_but_the_same_failure(family, data, starts_in):
    tokens = data.draw(SOUP[family])
    decoder = decoder_of(family, starts_in)
    _, error = run(decoder, [tokens])
    if error is None:
        return
    assert error.details["problem"] in PROBLEMS
    before = decoder.statistics()
    for again in (lambda: decoder.push(1), lambda: decoder.push_many(tokens), lambda: decoder.finish(), decoder.finish):
        with pytest.raises(MalformedChannels) as caught:
            again()
        assert caught.value == error
        assert caught.value.events == ()
    assert decoder.statistics() == before


def outside(tokens: Sequence[int], spellings: Markers, starts_in: str) -> list[int]:
    """Tokens outside of any opener and its closer, by trying every marker at every end: the rule, without a decoder."""
    told, inside, start = [], starts_in == "thought", 0
    for end in range(1, len(tokens) + 1):
        complete = [found for found in spellings.spellings if tuple(tokens[start:end][-len(found) :]) == found]
        if complete:
            longest = max(complete, key=len)
            if not inside:
                told += tokens[start : end - len(longest)]
            inside, start = spellings.spellings[longest].signal.startswith("open"), end
    return told if inside else [*told, *tokens[start:]]


@pytest.mark.parametrize("family", ["spelled", "think", "gemma4"])
@given(data=st.data(), starts_in=STARTS, allowed=st.booleans())
def test_R61_no_token_between_opener_and_closer_is_an_answer(family, data, starts_in, allowed):
    tokens = data.draw(SOUP[family])
    decoder = decoder_of(family, starts_in)
    events, error = run(decoder, [tokens], allow_open_thought=allowed)
    told = outside(tokens, decoder.markers, starts_in)
    answer = tokens_of("answer", events)
    assert answer == told[: len(answer)]
    if error is None:
        assert answer == told


@given(
    thought=st.lists(st.integers(10, 900), min_size=1, max_size=6),
    answer=st.lists(st.integers(10, 900), max_size=6),
    fault=st.sampled_from(["<|call|>", "<|return|>", "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"]),
)
def test_R61_a_message_of_thought_leaks_nowhere_when_it_breaks(thought, answer, fault):
    final = ids("harmony", "<|channel|>final<|message|>")
    then = ids("harmony", "<|end|><|start|>assistant<|channel|>analysis<|message|>")
    tokens = [*final, *answer, *then, *thought, *ids("harmony", fault), *answer]
    events, error = run(decoder_of("harmony", "turn", ChannelLimits()), [tokens])
    assert error is not None
    assert tokens_of("answer", events) == answer
    assert tokens_of("thought", events) == thought
    # The error tells the marker, and nothing that was thought.
    assert (error.details["found"], error.details["open_channel"]) == (fault, "thought")


@ALL
@given(data=st.data(), starts_in=STARTS)
def test_R61_only_events_and_the_typed_failure_come_out_and_every_ordinary_token_once(family, data, starts_in):
    tokens = data.draw(SOUP[family])
    decoder = decoder_of(family, starts_in)
    taken: list[ChannelEvent] = []
    for token in tokens:
        try:
            taken += decoder.push(token)
        except MalformedChannels as error:
            taken += error.events
            break
        assert decoder.statistics().held < decoder.markers.longest
    carried = [token for event in taken if isinstance(event, ChannelTokens) for token in event.tokens]
    stream = iter(tokens)
    assert all(token in stream for token in carried), "not in the order of the stream, or twice"
    assert len(carried) == sum(getattr(decoder.statistics(), kind) for kind in ("thought", "answer", "tool_call"))
    opened = sum(isinstance(event, ChannelOpened) for event in taken)
    assert opened == decoder.statistics().channels <= LIMITS.channels


def test_R59_memory_does_not_grow_with_the_output():
    decoder = ChannelDecoder(markers("think"))
    text = ids("think", "<think>12345</think>67890<tool_call>12</tool_call>")

    def size() -> int:
        values = attrs.asdict(decoder, recurse=False).values()
        return sum(len(value) for value in values if hasattr(value, "__len__"))

    decoder.push_many(text)
    first = size()
    for _ in range(60):
        decoder.push_many(text)
        assert size() == first


def test_R60_a_label_that_shares_a_token_with_its_line_end_is_read():
    letters = {1: b"thought", 2: b"\n\n", 3: b"x", 4: b"thought\n", 5: b"\nx", 6: b"tho", 7: b"ught\n", 8: b"\xff\n"}
    spellings = {(10 + n,): marker for n, marker in enumerate(FAMILIES["gemma4"].markers)}
    gemma = Markers(FAMILIES["gemma4"], spellings, letters.__getitem__)
    for label in ((1, 2), (4,), (6, 7)):
        events, error = run(ChannelDecoder(gemma), [(10, *label, 3, 11, 3)])
        assert error is None
        assert (tokens_of("thought", events), tokens_of("answer", events)) == ([3], [3])
    for label in ((1, 5), (8,)):
        _, error = run(ChannelDecoder(gemma), [(10, *label)])
        assert error is not None
        assert error.details["problem"] == "malformed_header"
