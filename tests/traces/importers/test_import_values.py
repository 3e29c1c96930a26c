"""Values of other formats: times exact to the nanosecond, lengths against ids, numbers of blocks."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from coresident.traces.importers.content import Named, Unnamed, made, mismatch, number_of
from coresident.traces.importers.values import Wrong, block_ids, milliseconds, prompt_tokens, seconds, stamp, text
from hypothesis import given
from hypothesis import strategies as st

MOST = 2**63 - 1
SIZES = st.sampled_from([1, 16, 64, 512])
LENGTHS = st.integers(1, 5000)


@given(st.integers(0, MOST))
def test_seconds_are_exact_to_the_nanosecond_as_text_and_as_a_json_number(ns):
    written = f"{ns // 10**9}.{ns % 10**9:09}"
    assert seconds(written) == seconds(f" {written}0 ") == ns
    assert seconds(json.loads(written, parse_float=Decimal)) == ns


@given(st.integers(0, MOST // 10**6 - 1), st.integers(0, 999_999))
def test_milliseconds_are_exact_to_the_nanosecond(ms, ns):
    assert milliseconds(ms) == ms * 10**6
    assert milliseconds(Decimal(f"{ms}.{ns:06}")) == ms * 10**6 + ns


@given(st.integers(0, 9_000_000_000 * 10**9), st.integers(-14 * 60, 14 * 60), st.integers(7, 9))
def test_stamps_are_exact_in_every_zone(ns, minutes, digits):
    part = 10 ** (9 - digits)
    ns = (ns // part) * part + 86_400 * 10**9
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ns // 10**9, minutes=minutes)
    written = f"{moment:%Y-%m-%d %H:%M:%S}.{str(ns % 10**9).zfill(9)[:digits]}"
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    assert stamp(written + zone) == ns
    if not minutes:
        assert stamp(written) == stamp(written + "Z") == ns


@pytest.mark.parametrize("value", ["1.0000000005", "1.0000000015", "0.9999999995000001"])
def test_what_is_finer_than_a_nanosecond_is_rounded_to_the_nearest(value):
    assert abs(Decimal(seconds(value)) - Decimal(value) * 10**9) <= Decimal("0.5")


@pytest.mark.parametrize(
    "value",
    [
        *("-1", "nan", "NaN", "inf", "-inf", "Infinity", "1e3", "1_000", "", " ", "0x10", "\N{SUPERSCRIPT TWO}", "1,5"),
        *(None, True, 1.5, [1], -1, 2**63, 10**40, "9" * 41, "9223372036.854775808"),
        *(Decimal("NaN"), Decimal("-Infinity"), Decimal("1E+400000000"), Decimal("-0.1")),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_FIELD_71_a_time_that_is_none_is_refused_with_its_value(value):
    with pytest.raises(Wrong, match="a time in seconds is"):
        seconds(value)


def test_a_time_too_small_to_count_is_zero():
    assert seconds(Decimal("1E-400000000")) == seconds(Decimal("1E-30")) == 0


@pytest.mark.parametrize(
    "value",
    ["0", "-3", "1.0", "1e2", "", "nan", 0, -1, 1.0, True, None, Decimal("2.0"), 2**24 + 1, "9" * 41, [1]],
    ids=repr,
)
def test_a_length_that_is_none_is_refused_with_its_value(value):
    with pytest.raises(Wrong, match="a prompt's length is a whole number from 1 to 16777216"):
        prompt_tokens(value)


@pytest.mark.parametrize("value", [7, "7", {"a": 1}, [1, -1], [1.0], [True], [2**63 - 1], [None]], ids=repr)
def test_ids_that_are_none_are_refused(value):
    with pytest.raises(Wrong, match=r"list of ids|block's id"):
        block_ids(value)


@pytest.mark.parametrize(
    "value",
    [
        *("2023-11-16", "2023-13-16 18:15:46", "2023-11-16 25:15:46", "2023-11-16 18:15:46.1234567890"),
        *("1969-12-31 23:59:59", "9999-01-01 00:00:00", "2023-11-16 18:15:46+99:00", "16/11/2023 18:15", "", 5, None),
    ],
    ids=repr,
)
def test_a_stamp_that_is_none_is_refused_with_its_value(value):
    with pytest.raises(Wrong):
        stamp(value)


@pytest.mark.parametrize("value", [None, 1.5, ["a"], "x" * 1001, True], ids=lambda value: repr(value)[:20])
def test_a_name_that_is_none_is_refused(value):
    with pytest.raises(Wrong, match="a name is needed"):
        text(value)


@given(LENGTHS, SIZES)
def test_lengths_and_ids_agree_only_at_their_own_size(tokens, size):
    count = -(-tokens // size)
    assert mismatch(tokens, count, size) is None
    assert mismatch(tokens, count + 1, size)
    assert mismatch(tokens, count - 1, size)
    assert (mismatch(tokens, tokens // size, size, short=True)) is None


@given(LENGTHS, SIZES, SIZES)
def test_a_wrong_size_is_told_which_would_fit(tokens, size, wrong):
    found = mismatch(tokens, -(-tokens // size), wrong)
    if found is None:
        return
    assert "would fit" in found
    fitting = [int(word) for word in found.split("blocks of ")[-1].split(" tokens")[0].split(" or ") if word.isdigit()]
    assert all(mismatch(tokens, -(-tokens // size), fit) is None for fit in fitting)


@given(st.lists(st.tuples(LENGTHS, st.integers(0, 3)), max_size=8), st.sampled_from(["", "session"]))
def test_equal_numbers_have_equal_lengths_and_every_number_is_one_of_the_format(sequences, scope):
    named, size, lengths = Named(64, scope), 64, {}
    for tokens, start in sequences:
        content = named.content(tokens, range(start, start + -(-tokens // size)))
        assert len(content.blocks) == -(-tokens // size)
        for index, block in enumerate(content.blocks):
            assert 1 <= block <= MOST
            assert lengths.setdefault(block, min(size, tokens - index * size)) == min(size, tokens - index * size)


@given(st.lists(LENGTHS, max_size=8), st.integers(0, 500))
def test_unnamed_prompts_share_a_head_of_whole_blocks_and_nothing_else(lengths, shared):
    unnamed, size, seen = Unnamed(64, shared), 64, set()
    for tokens in lengths:
        blocks = unnamed.content(tokens).blocks
        head = min(shared, tokens) // size
        assert len(blocks) == -(-tokens // size)
        assert blocks[:head] == tuple(range(1, head + 1))
        assert not seen & set(blocks[head:])
        seen.update(blocks[head:])


@given(LENGTHS, SIZES, st.text(max_size=5))
def test_made_up_content_is_the_same_for_the_same_name(tokens, size, name):
    content = made(tokens, size, name)
    assert content == made(tokens, size, name)
    assert len(content.blocks) == -(-tokens // size)
    assert not set(content.blocks) & set(made(tokens, size, name, "other").blocks)


def test_any_name_has_a_number_and_it_is_the_same_in_every_process():
    assert 1 <= number_of("\ud800", "é") <= MOST
    assert number_of("block", "weka s", 1) == 8430673110251407671
