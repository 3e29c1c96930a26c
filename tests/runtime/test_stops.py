"""Stop strings: found however the stream is cut, never shown, and never more held back than needed."""

from __future__ import annotations

import pytest
from coresident.actors.errors import InvalidRequest
from coresident.runtime.models.stops import MAX_STOP_LENGTH, MAX_STOPS, StopScanner
from hypothesis import given
from hypothesis import strategies as st

LETTERS = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4).map(tuple)


def first_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The rule, character by character: text before the stop string that is complete first, the longest of those."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def scan(pieces: list[str], stops: tuple[str, ...]) -> tuple[str, str | None]:
    scanner = StopScanner(stops)
    said = ""
    for piece in pieces:
        text, stopped = scanner.push(piece)
        said += text
        assert stopped == (scanner.matched is not None)
        if stopped:
            return said, scanner.matched
    return said + scanner.flush(), None


@given(pieces=st.lists(LETTERS, max_size=8), stops=STOPS)
def test_every_cut_of_a_stream_gives_the_rules_result(pieces: list[str], stops: tuple[str, ...]):
    text = "".join(pieces)
    expected = first_stop(text, stops)
    assert scan(pieces, stops) == expected
    assert scan(list(text), stops) == expected
    assert scan([text], stops) == expected


@given(pieces=st.lists(LETTERS, max_size=8), stops=STOPS)
def test_held_back_is_the_longest_possible_beginning_and_no_more(pieces: list[str], stops: tuple[str, ...]):
    scanner = StopScanner(stops)
    seen = said = ""
    for piece in pieces:
        text, stopped = scanner.push(piece)
        seen, said = seen + piece, said + text
        if stopped:
            return
        assert said + scanner.held == seen
        assert len(scanner.held) < max(map(len, stops), default=1)
        assert not scanner.held or any(stop.startswith(scanner.held) for stop in stops)


@pytest.mark.parametrize(
    ("text", "stops", "said", "matched"),
    [
        ("one END two", ("END",), "one ", "END"),
        ("no stop here", ("END",), "no stop here", None),
        ("abcd", ("abcd", "bc"), "a", "bc"),
        ("xabc", ("c", "abc"), "x", "abc"),
        ("aab", ("ab",), "a", "ab"),
        ("stop", (), "stop", None),
        ("\u4f60\u597d\u3002\u597d", ("\u3002",), "\u4f60\u597d", "\u3002"),
    ],
)
def test_which_stop_string_wins(text: str, stops: tuple[str, ...], said: str, matched: str | None):
    assert scan([text], stops) == (said, matched)
    assert scan(list(text), stops) == (said, matched)


def test_after_a_stop_nothing_comes_out():
    scanner = StopScanner(["."])
    assert scanner.push("a.b") == ("a", True)
    assert scanner.push("c") == ("", True)
    assert scanner.flush() == ""


@pytest.mark.parametrize(
    "stops",
    ["abc", [""], ["a", ""], [3], ["x" * (MAX_STOP_LENGTH + 1)], [str(i) for i in range(MAX_STOPS + 1)]],
)
def test_meaningless_stop_strings_are_refused(stops):
    with pytest.raises(InvalidRequest, match="stop"):
        StopScanner(stops)


def test_repeated_stop_strings_count_once():
    assert StopScanner(["a", "b", "a"]).stops == ("a", "b")
