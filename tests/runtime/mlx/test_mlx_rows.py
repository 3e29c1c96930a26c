"""Decision rows side by side on MLX: a row's scores are its own, whatever stands beside it and however long it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from coresident.actors.errors import BackendFault, BudgetExceeded, InvalidRequest
from coresident.actors.work import DecisionRow, StepKind, StepShape
from coresident.runtime.backends.batched import FEATURE, ROW_TOLERANCE, score_rows
from coresident.runtime.backends.checks import drain as run
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.models.locate import ModelSource

from support.backends import opened_on
from support.mlx_models import GEMMA3, needs_mlx, write_random
from support.reference import HEADS, MODEL, decode, drain, prefill, score

needs_mlx()

import mlx.core as mx  # noqa: E402 - skipped without it
from coresident.runtime.backends.mlx.caches import LayerCache  # noqa: E402
from coresident.runtime.backends.mlx.description import Sizes  # noqa: E402
from coresident.runtime.backends.mlx.rows import RowsCache  # noqa: E402

INSTRUCTION = 21
REQUEST = PlanRequest(64, 1, 16, decision_slots=3, decision_context=320, rows_per_slice=3, heads=("yes", "rest"))
TOKENS = [int(token) for token in np.random.default_rng(9).integers(0, 96, 400)]
SHORT = TOKENS[-9:]


@pytest.fixture(scope="module")
def plain():
    return ready(opened_on("mlx", request=REQUEST))


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    folder = write_random(tmp_path_factory.mktemp("windowed") / "model", GEMMA3 | {"max_position_embeddings": 512})
    return ready(opened_on("mlx", ModelSource(str(folder), HEADS), REQUEST))


def ready(backend, length=INSTRUCTION):
    """Every decision slot holds the instruction."""
    if length:
        prefill(backend, 0, TOKENS[:length], role="decision")
        drain(backend.copy(MODEL, "decision", 0, (1, 2), length))
    return backend


def row_of(length):
    return TOKENS[INSTRUCTION : INSTRUCTION + length]


def charged(backend, rows, start=INSTRUCTION):
    longest = max(map(len, rows))
    shape = StepShape(StepKind.DECISION, len(rows), longest, start + longest)
    return backend.open_workspace(backend.charge(MODEL, shape))


def work(rows, start=INSTRUCTION):
    return [DecisionRow(index, index, start, tuple(row)) for index, row in enumerate(rows)]


def side_by_side(backend, rows, start=INSTRUCTION):
    """The scores of rows in one step, whose peak is no more than its charge."""
    space = charged(backend, rows, start)
    scores, _ = drain(score_rows(backend, space, MODEL, work(rows, start), ("yes", "rest")))
    assert 0 < space.peak() <= space.charge
    space.close()
    assert all(math.isfinite(value) for values in scores for value in values)
    return scores


def close(one, other):
    return np.allclose(one, other, rtol=ROW_TOLERANCE, atol=ROW_TOLERANCE)


@pytest.mark.parametrize("length", [127, 128, 129, 255, 256, 257, 288])
def test_FIELD_83_a_row_of_awkward_length_beside_a_short_one_has_its_own_finite_scores(plain, length):
    rows = [row_of(length), SHORT] if length % 2 else [SHORT, row_of(length)]
    alone = [score(plain, 0, INSTRUCTION, row) for row in rows]
    assert close(side_by_side(plain, rows), alone)
    assert not close(alone[0], alone[1])


def test_of_one_padded_shape_a_rows_scores_are_the_same_bits_whoever_is_beside_it(plain):
    row = row_of(40)
    beside = [row_of(40)[::-1], row_of(39), SHORT, [0], [95] * 17]
    assert len({side_by_side(plain, [row, other])[0] for other in beside}) == 1
    assert len({side_by_side(plain, [other, row])[1] for other in beside}) == 1


@pytest.mark.parametrize("start", [0, 5, INSTRUCTION])
@pytest.mark.parametrize("lengths", [(1, 1), (3, 1), (30, 2), (4, 30, 12)])
def test_rows_of_layers_with_a_window_see_what_they_see_alone(windowed, start, lengths):
    """Instructions and rows that are longer and shorter than the window of 8."""
    ready(windowed, start)
    rows = [row_of(length)[::-1] for length in lengths]
    alone = [score(windowed, 0, start, row) for row in rows]
    assert close(side_by_side(windowed, rows, start), alone)


def test_rows_suspended_between_layers_go_on_exactly_and_leave_their_slots_alone(plain):
    rows = [row_of(50), SHORT]
    expected = side_by_side(plain, rows)
    space = charged(plain, rows)
    lengths = iter(range(11, 40))

    def between():
        length = next(lengths)
        prefill(plain, 0, TOKENS[:length])
        decode(plain, [(0, length, 7)])
        assert close(score(plain, 2, INSTRUCTION, SHORT), expected[1])

    assert run(plain.score_rows(space, MODEL, work(rows), ("yes", "rest")), between) == expected
    assert next(lengths) > 13
    assert space.peak() <= space.charge
    space.close()


def test_rows_given_up_cost_the_slots_nothing(plain):
    rows = [row_of(30), SHORT]
    expected = side_by_side(plain, rows)
    space = charged(plain, rows)
    step = plain.score_rows(space, MODEL, work(rows), ("yes",))
    next(step)
    step.close()
    space.close()
    assert side_by_side(plain, rows) == expected


def test_a_backend_that_is_told_not_to_scores_one_row_after_the_other(plain):
    rows = [row_of(30), SHORT]
    single = ready(opened_on("mlx", request=REQUEST, batched=False))
    assert (FEATURE in plain.capabilities.features, FEATURE in single.capabilities.features) == (True, False)
    found, steps = [], []
    for backend in (plain, single):
        space = charged(backend, rows)
        scores, count = drain(score_rows(backend, space, MODEL, work(rows), ("yes", "rest")))
        space.close()
        found.append(scores)
        steps.append(count)
    assert found[1] == tuple(score(single, 0, INSTRUCTION, row) for row in rows)
    assert close(*found)
    assert steps[1] == 2 * steps[0]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [DecisionRow(0, 1, INSTRUCTION, (1,)), DecisionRow(1, 1, INSTRUCTION, (1,))],
        [DecisionRow(0, 0, INSTRUCTION, (1,)), DecisionRow(1, 1, INSTRUCTION - 1, (1,))],
    ],
)
def test_rows_need_a_slot_each_and_one_instruction(plain, rows):
    space = plain.open_workspace(1 << 22)
    with pytest.raises(InvalidRequest, match="side by side: there must be at least one"):
        drain(plain.score_rows(space, MODEL, rows, ("yes",)))
    space.close()


def test_rows_are_refused_like_one_row(plain):
    space = plain.open_workspace(1 << 24)
    for tokens, message in [((), "0 tokens"), ((96, 256), "token 256"), (tuple(TOKENS[:300]), "the slot holds 320")]:
        with pytest.raises(InvalidRequest, match=message):
            drain(plain.score_rows(space, MODEL, work([SHORT, tokens]), ("yes",)))
    space.close()


def test_R14_rows_beyond_their_charge_are_refused_before_anything_is_built(plain):
    rows = [row_of(60), SHORT]
    space = charged(plain, rows[1:])
    with pytest.raises(BudgetExceeded):
        drain(plain.score_rows(space, MODEL, work(rows), ("yes",)))
    assert space.peak() == 0
    space.close()


@pytest.mark.parametrize("make", [lambda layer: layer, lambda layer: RowsCache([layer, layer], 0)])
def test_a_layer_that_asks_its_cache_twice_or_never_is_a_fault(make):
    """What describing a model refuses already; a step must not go on with half of its keys."""
    cache = make(LayerCache(Sizes(1, 8, 1, 1, 8, 8, 8, "float32", (None,)), None, 4))
    keys = mx.zeros((2 if isinstance(cache, RowsCache) else 1, 1, 1, 8))
    with pytest.raises(BackendFault, match="never asked"):
        cache.commit()
    cache.update_and_fetch(keys, keys)
    with pytest.raises(BackendFault, match="twice in one step"):
        cache.update_and_fetch(keys, keys)
