"""The forms of step time: numbers at known points, between and beyond them, and what holds for all."""

from __future__ import annotations

import pytest
from coresident.runtime.backends.costs import Linear, Table
from coresident.runtime.backends.device_model import CostModel
from hypothesis import given
from hypothesis import strategies as st

GRID = Table((1, 4, 8), (100, 300), ((10, 20), (40, 60), (40, 90)))
COUNT = st.integers(0, 10**7)
TIME = st.integers(0, 10**15)


def test_a_constant_is_the_same_for_every_size():
    cost = Linear.of(fixed_ns=7)
    assert {cost.ns(size, context) for size in (0, 1, 10**6) for context in (0, 10**6)} == {7}


@pytest.mark.parametrize(
    ("size", "context", "expected"),
    [(0, 0, 100), (1, 0, 102), (10, 0, 125), (10, 1000, 125 + 200), (3, 7, 107), (1, 24, 102), (1, 25, 103)],
)
def test_linear_adds_a_part_for_size_and_one_for_size_times_context(size, context, expected):
    """100 + 2.5 a token + 0.02 a token and token of context, rounded down."""
    assert Linear.of(100, 2.5, 0.02).ns(size, context) == expected


def test_a_cost_model_takes_the_time_that_its_formula_says():
    times = CostModel(step_ns=200, prefill_ns=3, attention_ns=20, decode_ns=50, row_ns=7).device().times
    assert times.prefill.ns(33, 1000) == 200 + 33 * 3 + 33 * 1000 * 20 // 1000
    assert times.decode.ns(5, 1000) == 200 + 50 + 5 * 7


@pytest.mark.parametrize("size", range(3))
@pytest.mark.parametrize("context", range(2))
def test_a_table_has_its_points(size, context):
    assert GRID.ns(GRID.sizes[size], GRID.contexts[context]) == GRID.times[size][context]


@pytest.mark.parametrize(
    ("size", "context", "expected"),
    [
        (2, 100, 20),  # a third of the way from 10 to 40
        (1, 150, 12),  # a quarter of the way from 10 to 20, rounded down
        (6, 200, 57),  # in the middle of 40, 60, 40 and 90: 57.5
        (0, 0, 10),  # below both axes: the first point
        (16, 300, 90 + 60),  # beyond the last size: 7.5 each from 60 at 4
        (16, 100, 40),  # where the last two sizes take the same, so does a larger one
        (1, 500, 30),  # beyond the last context: 0.05 each from 20 at 300
        (16, 500, 260),  # beyond both: at a context of 500, 80 at 4 and 140 at 8, then 15 each
    ],
)
def test_between_points_are_straight_lines_that_go_on_where_they_rise(size, context, expected):
    assert GRID.ns(size, context) == expected


def test_beyond_the_last_point_the_last_time_can_hold():
    held = Table(GRID.sizes, GRID.contexts, GRID.times, extend=False)
    assert held.ns(10**6, 10**6) == 90
    assert held.ns(8, 10**6) == 90
    assert held.ns(10**6, 100) == 40


def test_one_point_is_a_constant():
    assert {Table((5,), (9,), ((123,),)).ns(size, context) for size in (0, 5, 99) for context in (0, 9, 99)} == {123}


@pytest.mark.parametrize(
    ("sizes", "contexts", "times", "message"),
    [
        ((), (0,), (), "sizes are"),
        ((1, 1), (0,), ((1,), (2,)), "sizes are"),
        ((2, 1), (0,), ((1,), (2,)), "sizes are"),
        ((1,), (3, 2), ((1, 2),), "contexts are"),
        ((1, 2), (0,), ((1,),), "1 rows of times for 2 sizes"),
        ((1, 2), (0,), ((1,), (2, 3)), "size 2 has 2 times for 1 contexts"),
        ((1, 2), (0,), ((1,), (-2,)), "size 2 has a time of -2"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(sizes, contexts, times, message):
    with pytest.raises(ValueError, match=message):
        Table(sizes, contexts, times)


def test_negative_coefficients_are_refused():
    with pytest.raises(ValueError, match="pair is -1"):
        Linear(0, 0, -1)


@st.composite
def tables(draw, rising=False):
    sizes = sorted(draw(st.sets(COUNT, min_size=1, max_size=5)))
    contexts = sorted(draw(st.sets(COUNT, min_size=1, max_size=4)))
    rows = [draw(st.lists(TIME, min_size=len(contexts), max_size=len(contexts))) for _ in sizes]
    if rising:
        for i, row in enumerate(rows):
            for j in range(len(row)):
                row[j] = max(row[j], row[j - 1] if j else 0, rows[i - 1][j] if i else 0)
    return Table(tuple(sizes), tuple(contexts), tuple(map(tuple, rows)), draw(st.booleans()))


@given(st.one_of(tables(), st.builds(Linear, TIME, TIME, TIME)), COUNT, COUNT)
def test_no_time_is_negative(cost, size, context):
    assert cost.ns(size, context) >= 0


@given(tables(), st.data())
def test_a_table_hits_every_point_and_stays_between_its_neighbours(table, data):
    at = [data.draw(st.integers(0, len(axis) - 1)) for axis in (table.sizes, table.contexts)]
    assert table.ns(table.sizes[at[0]], table.contexts[at[1]]) == table.times[at[0]][at[1]]
    inside = [data.draw(st.integers(axis[0], axis[-1])) for axis in (table.sizes, table.contexts)]
    everything = [time for row in table.times for time in row]
    assert min(everything) <= table.ns(*inside) <= max(everything)


@given(tables(rising=True), COUNT, COUNT, COUNT, COUNT)
def test_a_table_that_rises_gives_times_that_never_fall(table, size, more, context, further):
    """Inside the measured range; beyond it the slopes of two rows may differ."""
    size, larger = (min(value, table.sizes[-1]) for value in (size, size + more))
    context, longer = (min(value, table.contexts[-1]) for value in (context, context + further))
    assert table.ns(size, context) <= table.ns(larger, longer)
