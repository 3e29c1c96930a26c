"""Pieces are packed into few allocations, and all of them are freed."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BudgetExceeded
from coresident.runtime.backends.vulkan.arena import Arena, Packing, Piece, pack
from coresident.runtime.backends.vulkan.results import Result
from hypothesis import given
from hypothesis import strategies as st

from support.vulkan_fakes import Watched
from support.vulkan_life import functions, opened

BLOCK = 4096


@given(st.lists(st.integers(1, 2 * BLOCK), max_size=60), st.sampled_from([64, 256]))
def test_every_piece_lies_aligned_in_one_block_and_none_overlap(sizes, alignment) -> None:
    pieces = [Piece(str(index), size) for index, size in enumerate(sizes)]
    packing = pack(pieces, BLOCK, alignment)
    assert list(packing.places) == [piece.name for piece in pieces]
    ends = [0] * len(packing.blocks)
    for place in sorted(packing.places.values(), key=lambda place: (place.block, place.offset)):
        assert place.offset % alignment == 0
        assert place.offset >= ends[place.block]
        ends[place.block] = place.offset + place.bytes
    for block, end in zip(packing.blocks, ends, strict=True):
        assert end <= block < end + alignment
        assert block <= BLOCK or sum(place.bytes == end for place in packing.places.values())
    assert [packing.places[piece.name].bytes for piece in pieces] == sizes


@given(st.lists(st.integers(1, BLOCK), max_size=60))
def test_no_two_blocks_are_half_empty(sizes) -> None:
    blocks = pack((Piece(str(index), size) for index, size in enumerate(sizes)), BLOCK, 64).blocks
    assert sum(size <= BLOCK // 2 for size in blocks) <= 1


def test_a_piece_that_is_too_large_has_an_oversized_block_of_its_own() -> None:
    packing = pack([Piece("small", 64), Piece("large", BLOCK + 1), Piece("last", 64)], BLOCK, 64)
    assert packing.blocks == (128, BLOCK + 64)
    assert packing.places["large"].block == 1
    assert packing.places["last"].offset == 64


def test_pieces_have_bytes_and_names_of_their_own() -> None:
    assert pack([], BLOCK, 64) == Packing((), {})
    with pytest.raises(ValueError, match="piece b of 0 bytes"):
        pack([Piece("b", 0)], BLOCK, 64)
    with pytest.raises(ValueError, match="piece b of 2 bytes"):
        pack([Piece("b", 1), Piece("b", 2)], BLOCK, 64)


def test_an_arena_takes_what_its_blocks_require_and_pieces_do_not_touch_each_other() -> None:
    device = opened()
    packing = pack([Piece("a", 1000), Piece("b", 3000), Piece("c", 500)], BLOCK, device.limits.alignment)
    arena = Arena.allocate(device, packing, "test", host=True)
    assert device.allocated == sum(map(device.requirement, packing.blocks))
    for number, name in enumerate("abc", start=1):
        bound = arena.at(name)
        bound.buffer.view[bound.offset :][: bound.bytes] = number
    for number, name in enumerate("abc", start=1):
        bound = arena.at(name)
        assert set(bound.buffer.view[bound.offset :][: bound.bytes]) == {number}
    arena.free()
    arena.free()
    assert device.allocated == 0
    device.close()


def test_an_arena_whose_second_block_is_refused_leaves_nothing() -> None:
    watched = Watched(functions())
    device = opened(watched.functions)
    watched.fail("vkAllocateMemory", Result.ERROR_OUT_OF_DEVICE_MEMORY, nth=2)
    packing = pack([Piece("a", BLOCK), Piece("b", BLOCK), Piece("c", BLOCK)], BLOCK, 64)
    with pytest.raises(BudgetExceeded, match=f"block 1 of weights asks for {device.requirement(BLOCK)} bytes"):
        Arena.allocate(device, packing, "weights")
    assert (device.allocations, device.allocated) == (0, 0)
    device.close()
    assert watched.left() == []
