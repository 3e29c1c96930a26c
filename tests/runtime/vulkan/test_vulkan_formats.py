"""Packing of weights: the file's own bytes in another order, and what no packed form can hold."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.backends.vulkan.formats import (
    BLOCKS,
    pack_rows,
    pack_values,
    padded_rows,
    parts,
    resident_format,
)
from hypothesis import given
from hypothesis import strategies as st

from support.vulkan_matrices import QUANTIZED, packed, random_rows, unpacked

WHERE = "model.gguf: tensor output"


@pytest.mark.parametrize("stored", sorted(QUANTIZED))
@given(rows=st.integers(1, 20), blocks=st.integers(1, 3), seed=st.integers(0, 9))
def test_quantized_blocks_keep_their_bytes_and_what_they_stand_for(stored, rows, blocks, seed) -> None:
    raw, inputs = random_rows(stored, rows, blocks, seed)
    form = resident_format(stored)
    found = pack_rows(form, stored, raw, inputs, WHERE)
    own = parts(form, rows, inputs)
    assert {part.name: found[part.name].shape for part in own} == {part.name: part.shape for part in own}
    assert sum(part.bytes for part in own) == sum(array.nbytes for array in found.values())
    if stored != "Q4_0":
        # Q4_0 keeps a minimum of two bytes beside each scale; the others take exactly what the file takes.
        assert sum(part.bytes for part in own) * rows == raw.nbytes * padded_rows(rows)
    exact = gguf.dequantize(raw, gguf.GGMLQuantizationType[stored])
    assert np.array_equal(unpacked(form, found, rows, inputs), exact)
    assert not any(array[:, rows:].any() for array in found.values())


@pytest.mark.parametrize("form", ["f32", "f16"])
@given(rows=st.integers(1, 20), inputs=st.integers(1, 40))
def test_floats_are_padded_with_zeros(form, rows, inputs) -> None:
    values = np.arange(1, rows * inputs + 1, dtype=np.float32).reshape(rows, inputs)
    (part,) = parts(form, rows, inputs)
    found = pack_values(form, values, WHERE)[part.name]
    whole = unpacked(form, {part.name: found}, padded_rows(rows), found.shape[0] * 4)
    assert found.shape == part.shape
    assert part.shape[0] * 4 % BLOCKS[form] == 0
    assert np.array_equal(whole[:rows, :inputs], values)
    assert not whole[rows:].any()
    assert not whole[:, inputs:].any()


@pytest.mark.parametrize("form", sorted(BLOCKS))
def test_slices_of_rows_are_columns_of_the_whole(form) -> None:
    matrix = packed(form, 21, 256)
    for first, stop in ((0, 8), (8, 21)):
        piece = packed(form, 21, 256, rows=slice(first, stop))
        for part in parts(form, stop - first, 256):
            columns = slice(first, first + part.shape[1])
            assert np.array_equal(piece[part.name], matrix[part.name][:, columns])


def test_types_without_a_kernel_become_halves() -> None:
    kept = {"F32": "f32", "F16": "f16", "Q8_0": "q8_0", "Q4_0": "q4_1", "Q4_1": "q4_1", "Q4_K": "q4_k"}
    assert {stored: resident_format(stored) for stored in kept} == kept
    assert {resident_format(stored) for stored in ("BF16", "Q5_0", "Q5_1", "Q6_K")} == {"f16"}


@pytest.mark.parametrize("value", [65520.0, -1e30, np.inf, np.nan])
def test_a_value_outside_float16_is_refused_by_place(value) -> None:
    values = np.ones((3, 8), np.float32)
    values[2, 5] = value
    with pytest.raises(ArtifactInvalid, match=r"model\.gguf: tensor output.*row 2, column 5.*stored as F32"):
        pack_values("f16", values, WHERE)
    assert np.array_equal(pack_values("f32", values, WHERE)["values"][1, 2].view(np.float32)[1], values[2, 5], True)
    values[2, 5] = 65504.0
    pack_values("f16", values, WHERE)


def test_a_q4_0_scale_that_cannot_be_kept_eight_times_is_refused() -> None:
    raw, inputs = random_rows("Q4_0", 2, 1, 0)
    raw[1, :2] = np.array([8192.0], np.float16).view(np.uint8)
    with pytest.raises(ArtifactInvalid, match=r"8192\.0.*Q4_0"):
        pack_rows("q4_1", "Q4_0", raw, inputs, WHERE)
    raw[1, :2] = np.array([-8184.0], np.float16).view(np.uint8)
    pack_rows("q4_1", "Q4_0", raw, inputs, WHERE)
