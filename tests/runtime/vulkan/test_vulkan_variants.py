"""Sizes of buffers and views that don't make a CPU driver compile a kernel once more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from coresident.runtime.backends.vulkan.variants import SLACK, buffer_size, view_size
from hypothesis import given
from hypothesis import strategies as st

BLOCK = 128 << 20


def info(kind: str = "cpu"):
    return SimpleNamespace(kind=kind, limits=SimpleNamespace(block=BLOCK))


@given(size=st.one_of(st.integers(1, 2 * BLOCK), st.integers(0, 28).map(lambda power: 1 << power)))
def test_a_buffer_below_the_limit_has_no_power_of_two_and_room_for_its_views(size: int) -> None:
    whole = buffer_size(info(), size)
    if whole == size:
        assert size + 2 * SLACK > BLOCK
    else:
        assert size + SLACK <= whole <= min(BLOCK, size + 2 * SLACK)
        assert whole & (whole - 1) != 0
    assert buffer_size(info("discrete"), size) == size


@given(texels=st.integers(1, BLOCK // 16), texel=st.sampled_from([4, 8, 16]))
def test_a_view_with_room_behind_it_is_of_the_one_kind(texels: int, texel: int) -> None:
    size = texel * texels
    seen = view_size(size, size + SLACK)
    assert size <= seen <= size + SLACK
    assert seen % texel == 0
    assert seen >> 8 & 0xFF != 0


@pytest.mark.parametrize("room", [1 << 16, (1 << 16) + 255])
def test_a_view_without_room_stays_as_it_is(room: int) -> None:
    assert view_size(1 << 16, room) == 1 << 16
