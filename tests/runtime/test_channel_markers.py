"""Markers found for a tokenizer, and found in a stream."""

from __future__ import annotations

import pytest
from channel_vocabulary import markers, tokenizer_with, vocabulary
from coresident.actors.errors import InvalidRequest
from coresident.runtime.models.channel_families import FAMILIES, TAGS, Family, Marker
from coresident.runtime.models.channel_markers import MarkerMatcher, Markers
from coresident.runtime.models.tokenizer import ByteTokenizer
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("family", FAMILIES)
def test_R57_markers_are_the_special_tokens_of_the_vocabulary(family):
    found = markers(family)
    assert found.longest == 1
    for marker in FAMILIES[family].markers:
        assert found.spellings[vocabulary(family).encode(marker.text)] == marker


def test_R57_a_family_that_the_tokenizer_does_not_have_is_refused_by_what_is_missing():
    with pytest.raises(InvalidRequest) as caught:
        Markers.of("gemma4", tokenizer_with("<|channel>", "<channel|>", "<turn|>"))
    assert caught.value.details["missing"] == ("<|tool_call>", "<tool_call|>")
    with pytest.raises(InvalidRequest, match=r"<\|start\|>"):
        Markers.of("harmony", ByteTokenizer())
    with pytest.raises(InvalidRequest, match="gemma4, think, harmony"):
        Markers.of("other", ByteTokenizer())


def test_R57_stop_tokens_end_the_turn_unless_the_family_uses_them():
    found = markers("think")
    (end,) = vocabulary("think").encode("<|im_end|>")
    assert end in vocabulary("think").stop_tokens
    assert found.spellings[(end,)] == Marker("<|im_end|>", "end_turn")
    close = Marker("<|im_end|>", "close_thought")
    family = Family("odd", TAGS, (Marker("<think>", "open_thought"), close), {"turn": "outside"})
    assert Markers.of(family, vocabulary("think")).spellings[(end,)] == close


def test_R57_tags_without_a_token_are_found_as_they_are_spelled():
    found = Markers.of("think", ByteTokenizer())
    assert set(found.spellings) == {tuple(marker.text.encode()) for marker in FAMILIES["think"].markers}
    tags = tokenizer_with("<think>")
    mixed = Markers.of("think", tags)
    assert mixed.spellings[tags.encode("<think>")].signal == "open_thought"
    assert len(tags.encode("<think>")) == 1
    spelled = tags.encode("</think>", special=False)
    assert len(spelled) > 1
    assert mixed.spellings[spelled].signal == "close_thought"


def test_markers_that_could_never_be_found_are_refused():
    family = Family(
        "odd", TAGS, (Marker("ab", "open_thought"), Marker("abc", "close_thought")), {"turn": "outside"}, spelled=True
    )
    with pytest.raises(InvalidRequest, match="begins with the tokens of ab"):
        Markers.of(family, ByteTokenizer())
    with pytest.raises(ValueError, match="signal"):
        Marker("ab", "no_such_signal")


SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4)


def prefix_free(sequences: list[tuple[int, ...]]) -> dict[tuple[int, ...], Marker]:
    kept: dict[tuple[int, ...], Marker] = {}
    for ids in sorted(set(sequences), key=len):
        if not any(ids[: len(other)] == other for other in kept):
            kept[ids] = Marker("m", "end_turn")
    return kept


@given(sequences=SEQUENCES, tokens=st.lists(st.integers(0, 2), max_size=30))
def test_R60_a_matcher_passes_everything_on_once_and_holds_the_least(sequences, tokens):
    spellings = prefix_free(sequences)
    matcher = MarkerMatcher(Markers(FAMILIES["think"], spellings, ByteTokenizer().token_bytes))
    passed: list[int] = []
    for count, token in enumerate(tokens, start=1):
        ordinary, marker = matcher.push(token)
        passed += [*ordinary, *marker]
        assert [*passed, *matcher.held] == tokens[:count]
        assert not marker or (marker in spellings and not matcher.held)
        assert not matcher.held or any(
            ids[: len(matcher.held)] == matcher.held and ids != matcher.held for ids in spellings
        )
    assert [*passed, *matcher.flush()] == tokens
    assert matcher.held == ()
