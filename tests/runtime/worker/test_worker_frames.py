"""Frames: one codec for both ends, whatever the cuts; nothing else is believed, and nothing large is set aside."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import pytest
from coresident.runtime.worker.flat import decode_body, encode_body
from coresident.runtime.worker.frames import MAX_FRAME, FrameDecoder, FrameInvalid, encode_frame
from hypothesis import given
from hypothesis import strategies as st


def _cut(data: bytes, sizes: list[int]):
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(0, 40), max_size=40))
def test_R43_frames_come_out_as_they_went_in_however_they_are_cut(bodies, sizes):
    decoder, seen = FrameDecoder(), []
    for part in _cut(b"".join(map(encode_frame, bodies)), sizes):
        seen += decoder.feed(part)
    decoder.end()
    assert seen == bodies


def test_R43_the_length_is_little_endian_and_does_not_count_itself():
    assert encode_frame(b"abc") == b"\x03\x00\x00\x00abc"
    assert encode_frame(b"") == bytes(4)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_R43_an_end_inside_a_frame_is_an_error_and_between_frames_is_none(body, data):
    frame = encode_frame(body)
    keep = data.draw(st.integers(1, len(frame) - 1))
    decoder = FrameDecoder()
    assert list(decoder.feed(frame + frame[:keep])) == [body]
    with pytest.raises(FrameInvalid, match=f"ended inside a frame, of which {keep} bytes had come"):
        decoder.end()


def test_R43_a_length_above_the_bound_is_refused_before_anything_is_set_aside():
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        with pytest.raises(FrameInvalid, match=rf"announces {MAX_FRAME + 1} bytes, the limit is {MAX_FRAME}"):
            list(decoder.feed(struct.pack("<I", MAX_FRAME + 1)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(FrameInvalid, match="was to be sent"):
        encode_frame(bytes(MAX_FRAME + 1))


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_no_bytes_crash_the_decoder_or_make_it_hold_more_than_came(parts):
    decoder = FrameDecoder()
    with suppress(FrameInvalid):
        for part in parts:
            for body in decoder.feed(part):
                assert len(body) <= sum(map(len, parts))
                decode_body(body)
        decoder.end()


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["kind", "id", "a", "b"]), json, max_size=4))
def test_only_flat_objects_with_a_kind_and_an_id_are_bodies(body):
    flat = all(
        not isinstance(item, dict | list)
        for value in body.values()
        for item in (value if isinstance(value, list) else [value])
    )
    good = flat and type(body.get("kind")) is str and type(body.get("id")) is int
    data = encode_body(body)
    if good:
        assert encode_body(decode_body(data)) == data
    else:
        with pytest.raises(FrameInvalid):
            decode_body(data)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b'{"kind":"x","id":' + b"9" * 5000 + b"}", b"null"])
def test_what_is_no_json_object_is_no_body(data):
    with pytest.raises(FrameInvalid):
        decode_body(data)
