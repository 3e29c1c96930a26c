"""The workspace charge on MLX: the formula term by term, and what steps take of it where one term is most of it."""

from __future__ import annotations

import attrs
import pytest
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.checks import Bench
from coresident.runtime.backends.checks_workspace import largest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.models.locate import ModelSource
from hypothesis import given
from hypothesis import strategies as st

from support.mlx_models import needs_mlx, write_random
from support.reference import HEADS

needs_mlx()

from coresident.runtime.backends.mlx.backend import MlxBackend  # noqa: E402
from coresident.runtime.backends.mlx.description import Sizes  # noqa: E402
from coresident.runtime.backends.mlx.limits import nothing_cached, step_charge, step_need  # noqa: E402

PREFILL, DECODE, DECISION, WARMUP = StepKind.PREFILL, StepKind.DECODE, StepKind.DECISION, StepKind.WARMUP
H, HEADS_OF, KV_HEADS, DIM, F, V = 96, 12, 4, 8, 1152, 500
SIZES = Sizes(2, H, HEADS_OF, KV_HEADS, DIM, F, V, "float32", (None, None))
KV_WIDTH = KV_HEADS * DIM
SHAPES = [
    StepShape(kind, rows, tokens, context)
    for kind, rows in [(PREFILL, 1), (DECODE, 1), (DECODE, 3), (DECISION, 1), (DECISION, 2), (WARMUP, 2)]
    for tokens, context in [(1, 1), (1, 300), (40, 240), (288, 288)]
]


def published(kind, rows, tokens, context):
    """The envelope as measured for unfused float32 attention, and for decisions the copy of the keys and values."""
    output = 4 * (2 * V + 2 * H) + 65536
    per_token = 4 * (11 * H + 3 * F + 5 * KV_WIDTH)
    if kind is PREFILL:
        return tokens * (context * (4 * HEADS_OF + 1) + per_token) + output
    if kind is DECODE:
        return 2 * (context * (4 * HEADS_OF + 1) + per_token) + output
    if kind is WARMUP:
        return max(published(each, rows, tokens, context) for each in (PREFILL, DECODE, DECISION))
    batch = 4 * rows * tokens * (14 * H + 5 * F) + 8 * rows * HEADS_OF * tokens * context
    copied = rows * context * 2 * KV_WIDTH * 4
    return batch + copied + output


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_R14_the_need_is_the_published_envelope(shape):
    assert step_need(SIZES, shape) == published(*attrs.astuple(shape))


def test_R14_a_row_whose_attention_is_wide_needs_no_less_than_a_chunk():
    """Where heads times their size are more than the hidden size, the decision's own terms are the smaller ones."""
    wide = attrs.evolve(SIZES, head_dim=64)
    row, chunk = (step_need(wide, StepShape(kind, 1, 40, 40)) for kind in (DECISION, PREFILL))
    layer = 40 * (40 * 49 + 4 * (7 * H + 4 * 12 * 64 + 3 * F + 5 * 4 * 64))
    assert chunk == layer + 4 * (2 * V + 2 * H) + 65536
    assert row == chunk + 40 * 2 * 4 * 64 * 4


@given(
    kind=st.sampled_from([PREFILL, DECODE, DECISION, WARMUP]),
    sizes=st.tuples(*[st.tuples(st.integers(1, 4096), st.integers(0, 500))] * 3),
)
def test_a_larger_step_needs_no_less(kind, sizes):
    small, large = ([low for low, _ in sizes], [low + more for low, more in sizes])
    assert step_need(SIZES, StepShape(kind, *small)) <= step_need(SIZES, StepShape(kind, *large))


def test_margin_and_pages_are_on_top():
    shape = StepShape(PREFILL, 1, 40, 240)
    need = step_need(SIZES, shape)
    assert step_charge(SIZES, shape, 0, 0) == need
    assert step_charge(SIZES, shape, 25, 0) == need + -(-need // 4)
    assert step_charge(SIZES, shape, 0, 4096) == need + 2 * 16 * 4096
    assert step_charge(SIZES, StepShape(StepKind.COPY, 1, 40, 240), 25, 4096) == 0


PLAIN = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1024,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}
MLP = PLAIN | {"intermediate_size": 2048}
ATTENTION = PLAIN | {"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 4}
CACHE = PLAIN | {"head_dim": 128, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("settings", "shapes", "least", "most"),
    [
        (MLP, [StepShape(PREFILL, 1, 64, 64), StepShape(PREFILL, 1, 96, 160)], 0.6, 0.85),
        (MLP, [StepShape(DECISION, 1, 64, 64), StepShape(DECISION, 2, 48, 64)], 0.38, 0.6),
        (ATTENTION, [StepShape(PREFILL, 1, 64, 256), StepShape(PREFILL, 1, 128, 500)], 0.85, 1.0),
        (ATTENTION, [StepShape(DECISION, 1, 128, 128), StepShape(DECISION, 2, 64, 500)], 0.45, 0.65),
        (CACHE, [StepShape(DECISION, 1, 1, 500), StepShape(DECISION, 3, 16, 500)], 0.85, 1.0),
    ],
    ids=["mlp-prefill", "mlp-decision", "attention-prefill", "attention-decision", "cache-decision"],
)
def test_R9_what_the_largest_term_charges_is_what_steps_take(tmp_path, settings, shapes, least, most):
    """Measured, as a share of the need without a margin. Fused attention on a GPU takes less, so it has no band."""
    backend = MlxBackend({"model": ModelSource(str(write_random(tmp_path / "model", settings, 0.1)), HEADS)}, margin=0)
    bench = Bench(backend, "model", PlanRequest(500, 1, 32, 3, 500, 3, ("yes", "rest")))
    with nothing_cached():
        bench.load()
        for shape in shapes:
            largest(bench, [shape])
            assert bench.measured[-1].shape == shape
            share = bench.measured[-1].peak / bench.measured[-1].charge
            assert share <= most, (shape, share)
            assert share >= least or backend._limits.page > 1, (shape, share)
