"""Figures against each other: relations, which are best, and shares."""

from __future__ import annotations

import pytest
from coresident.traces.report.tables import as_good, relation
from coresident.traces.report.words import share


@pytest.mark.parametrize(
    ("values", "less", "good"),
    [
        ([138, 141, 200], True, {138, 141}),
        ([100, 105, 106], True, {100, 105}),
        ([138, 141], True, set()),
        ([100.0, 96.0, 50.0], False, {100.0, 96.0}),
        ([0, 1], True, {0}),
        ([5], True, set()),
    ],
)
def test_the_best_of_a_row_and_what_is_as_good_are_marked(values: list[float], less: bool, good: set[float]) -> None:
    assert as_good(values, less) == good


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (100, 100, ""),
        (100, 138, "+38 %"),
        (100, 62, "\N{MINUS SIGN}38 %"),
        (100, 420, "\N{MULTIPLICATION SIGN} 4.2"),
        (100, 11, "\N{MINUS SIGN}89 %"),
        (1e6, 100, "\N{DIVISION SIGN} 10,000"),
        (100, 0, "\N{MINUS SIGN}100 %"),
        (100, 1e6, "\N{MULTIPLICATION SIGN} 10,000"),
        (0, 5, ""),
        (None, 5, ""),
        (5, None, ""),
    ],
)
def test_how_two_figures_compare(before: float | None, now: float | None, words: str) -> None:
    assert relation(before, now) == words


def test_a_share_is_never_all_when_it_is_not() -> None:
    assert [share(part) for part in (None, 0.0, 0.0001, 0.034, 0.5, 0.9996, 1.0)] == [
        "-",
        "0 %",
        "< 0.1 %",
        "3.4 %",
        "50 %",
        "99.9 %",
        "100 %",
    ]
