"""Products with packed matrices: exact weights, one fixed order of additions, the same bits however dispatched."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from coresident.runtime.backends.vulkan.dispatches import TOKENS, Matrix, embed, matmul
from coresident.runtime.backends.vulkan.formats import BLOCKS, pack_rows, parts
from coresident.runtime.backends.vulkan.parameters import StepLayout

from support.vulkan_kernels import bench, bits, chain, floats, untouched
from support.vulkan_matrices import HALVES, STORED, packed, random_rows, stored_rows

ROWS = 45
WIDTHS = {"f32": 36, "f16": 44, "q8_0": 96, "q4_1": 96, "q4_k": 512}
FORMATS = sorted(BLOCKS)


def bound(form, rows=slice(None)):
    """The parts of the random matrix, or of a piece of it, as kernels bind them."""
    found = packed(form, ROWS, WIDTHS[form], rows)
    count = len(range(ROWS)[rows])
    return Matrix(form, count, WIDTHS[form]), [found[part.name] for part in parts(form, count, WIDTHS[form])]


def inputs_of(form, scale=1.0):
    """Eight rows of activations in the stride that a step gives them, padding zero."""
    width = WIDTHS[form]
    x = np.zeros((8, -(-width // 8) * 8 + 8), np.float32)
    x[:, :width] = np.random.default_rng(7).standard_normal((8, width), np.float32) * scale
    return x


def product(form, texel, tokens, x, rows=slice(None)):
    matrix, weights = bound(form, rows)
    y = floats(8, ROWS + 3)
    bench().run(matmul(texel, matrix, tokens, 0, x.shape[1], 2, y.shape[1]), weights, [x, y])
    found = np.stack([y.reshape(-1)[2 + t * y.shape[1] :][: matrix.rows] for t in range(tokens)])
    assert untouched(y).sum() == y.size - found.size
    return found


@pytest.mark.parametrize("form", FORMATS)
def test_a_product_adds_exact_weights_up_in_order_and_every_kernel_gives_its_bits(form) -> None:
    x, width = inputs_of(form), WIDTHS[form]
    _, values = stored_rows(form, ROWS, width)
    eight = product(form, True, 8, x)
    assert np.array_equal(eight, chain(values, x[:, :width]))
    for texel in (True, False):
        for tokens in (*TOKENS, 3) if texel else TOKENS:
            assert np.array_equal(bits(product(form, texel, tokens, x)), bits(eight[:tokens])), (texel, tokens)


@pytest.mark.parametrize("texel", [True, False])
@pytest.mark.parametrize("form", FORMATS)
def test_any_number_of_tokens_goes_by_in_tiles_of_one_dispatch(form, texel) -> None:
    width, tokens = WIDTHS[form], 13
    x = np.concatenate([inputs_of(form), inputs_of(form, -3.0)])
    matrix, weights = bound(form)
    y = floats(16, ROWS)
    bench().run(matmul(texel, matrix, tokens, 0, x.shape[1], 0, ROWS), weights, [x, y])
    assert np.array_equal(y[:tokens], chain(stored_rows(form, ROWS, width)[1], x[:tokens, :width]))
    assert untouched(y[tokens:]).all()


@pytest.mark.parametrize("form", ["q8_0", "q4_1", "q4_k"])
def test_E9_a_quantized_matvec_is_that_of_the_dequantized_matrix(form) -> None:
    x, width = inputs_of(form), WIDTHS[form]
    _, values = stored_rows(form, ROWS, width)
    exact = values.astype(np.float64) @ x[0, :width].astype(np.float64)
    found = product(form, True, 1, x)[0]
    assert np.abs(found - exact).max() <= 1e-3 * np.sqrt(np.mean(exact**2))
    own = parts(form, ROWS, width)
    assert sum(part.bytes for part in own) * 8 <= {"q8_0": 8.5, "q4_1": 5.0, "q4_k": 4.5}[form] * 48 * width


@pytest.mark.parametrize("form", ["f16", "q4_1"])
def test_pieces_of_rows_give_the_bits_of_the_whole(form) -> None:
    x = inputs_of(form)
    whole = product(form, True, 8, x)
    pieces = [product(form, True, 8, x, rows) for rows in (slice(0, 8), slice(8, 40), slice(40, ROWS))]
    assert np.array_equal(bits(np.concatenate(pieces, axis=1)), bits(whole))


@pytest.mark.parametrize("form", sorted(STORED))
@pytest.mark.filterwarnings("ignore:invalid value")
def test_every_scale_counts_as_the_half_that_it_is_however_small(form) -> None:
    """All halves below 2^-14, which a device's own conversion may take for 0, with either sign; infinite ones, NaN."""
    small = np.arange(0x400)
    halves = np.concatenate([small, small | 0x8000, np.arange(0x400, 0x10000, 37), [0x7C00, 0xFC00, 0x7E00]])
    raw, width = random_rows(STORED[form], len(halves), 1, 3)
    header = raw[:, : 2 * HALVES[STORED[form]]].view(np.uint16)
    header[:, 0], header[:, -1] = halves, halves[::-1] if header.shape[1] > 1 else halves
    values = gguf.dequantize(raw, gguf.GGMLQuantizationType[STORED[form]])
    own = pack_rows(form, STORED[form], raw, width, form)
    matrix = Matrix(form, len(halves), width)
    weights = [own[part.name] for part in parts(form, len(halves), width)]
    x = np.random.default_rng(4).standard_normal((1, width), np.float32)
    for texel in (True, False):
        y = floats(1, len(halves))
        bench().run(matmul(texel, matrix, 1, 0, width, 0, len(halves)), weights, [x, y])
        assert np.array_equal(y, chain(values, x), equal_nan=True)


@pytest.mark.parametrize("texel", [True, False])
def test_a_residual_is_added_to_the_finished_sum(texel) -> None:
    x, (matrix, weights) = inputs_of("q4_1"), bound("q4_1")
    before = np.random.default_rng(1).standard_normal((8, ROWS), np.float32) * np.float32(900)
    y = before.copy()
    bench().run(matmul(texel, matrix, 8, 0, x.shape[1], 0, ROWS, add=True), weights, [x, y])
    assert np.array_equal(y, before + product("q4_1", True, 8, x))


def test_a_token_that_is_not_finite_leaves_the_others_alone() -> None:
    x = inputs_of("f16")
    clean = product("f16", True, 8, x)
    x[3, 5], x[6, 0] = np.nan, np.inf
    found = product("f16", True, 8, x)
    others = [0, 1, 2, 4, 5, 7]
    assert np.array_equal(bits(found[others]), bits(clean[others]))
    assert np.isnan(found[3]).all()
    assert not np.isfinite(found[6]).any()


@pytest.mark.parametrize("form", FORMATS)
def test_an_embedding_is_the_dequantized_row_bit_for_bit(form) -> None:
    width = WIDTHS[form]
    _, values = stored_rows(form, ROWS, width)
    step = StepLayout(8, 16)
    view = np.zeros(step.bytes, np.uint8)
    ids = [44, 0, 17, 39, 40, 8, 7]
    step.write(view, ids, range(7), np.zeros(8))
    stride = -(-width // 8) * 8
    y = floats(6, stride)
    for first, stop in ((0, 8), (8, 40), (40, ROWS)):
        matrix, weights = bound(form, slice(first, stop))
        bench().run(embed(matrix, step, 6, 0, stride, first, first=1), weights, [view, y])
    assert np.array_equal(bits(y[:, :width]), bits(values[ids[1:]]))
    some = floats(6, stride)
    matrix, weights = bound(form, slice(0, 8))
    bench().run(embed(matrix, step, 6, 0, stride, 0, first=1), weights, [view, some])
    assert untouched(some).all(axis=1).tolist() == [token >= 8 for token in ids[1:]]
