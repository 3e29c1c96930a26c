"""Fitting the time of one kind of step to recorded ones: a line in size and context, or one that bends with size.

A chunk of a few tokens and one of hundreds don't lie on one line where a device has another way for small products. So
where sizes are recorded and a line misses them, a table of four sizes is tried, with the same part for context; it is
taken when it misses clearly less.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import attrs
import numpy as np

from ...runtime.backends.costs import Linear, Table
from .observe import Sample
from .solve import Matrix, least_absolute, told

CONSTANT = ("load", "warmup")
_MEANING = {0: "a fixed part", 1: "a part for size", 2: "a part for context"}
_KNOTS = 4
_NEEDED = 16
_STRAIGHT = 0.01
_BETTER = 0.9


@attrs.frozen
class Fit:
    """Step times of one kind, the steps they come from, and by how much they miss those (relative, median and p90).

    ``guesses`` say in words what the steps could not tell, and is taken as none.
    """

    kind: str
    cost: Linear | Table
    samples: int
    median: float
    p90: float
    guesses: tuple[str, ...]


def fit(kind: str, samples: Sequence[Sample]) -> Fit:
    """The time of a kind from its samples, of which there is at least one that took time."""
    known = [sample for sample in samples if sample.ns > 0]
    times = np.array([each.ns for each in known], dtype=np.float64)
    features = np.array([(each.steps, each.size, each.pairs) for each in known], dtype=np.float64)
    relative = features / times[:, None]
    columns = told(relative, (1, 0, 2))
    coefficients = least_absolute(relative, columns)
    missed = np.abs(relative @ coefficients - 1)
    cost: Linear | Table = Linear.of(*(float(value) for value in coefficients))
    bent = _bent(known, times) if missed.mean() > _STRAIGHT else None
    if bent is not None and bent[1].mean() < _BETTER * missed.mean():
        cost, missed = bent
    guesses = () if kind in CONSTANT else _untold(kind, len(known), columns)
    return Fit(kind, cost, len(known), float(np.median(missed)), float(np.quantile(missed, 0.9)), guesses)


def _untold(kind: str, recorded: int, columns: Collection[int]) -> tuple[str, ...]:
    missing = [words for column, words in _MEANING.items() if column not in columns]
    times = "once" if recorded == 1 else f"{recorded} times"
    return (f"{kind}: recorded {times}, too few or too alike to tell {' and '.join(missing)}",) if missing else ()


def _bent(samples: Sequence[Sample], times: Matrix) -> tuple[Table, Matrix] | None:
    """A table over sizes that rises in straight pieces, and by how much it misses; ``None`` of too little."""
    sizes = sorted({size for sample in samples for size in sample.sizes})
    if len(samples) < _NEEDED or len(sizes) < _KNOTS or not all(sample.sizes for sample in samples):
        return None
    knots = [sizes[round(part * (len(sizes) - 1) / (_KNOTS - 1))] for part in range(_KNOTS)]
    features = np.array([_pieces(sample, knots) for sample in samples], dtype=np.float64)
    relative = features / times[:, None]
    order = (*range(1, _KNOTS), 0, _KNOTS)
    coefficients = least_absolute(relative, told(relative, order))
    starts, slopes, pair = coefficients[0], coefficients[1:_KNOTS], float(coefficients[-1])
    heights = starts + np.concatenate([[0.0], np.cumsum(slopes * np.diff(knots))])
    longest = max(1, *(sample.pairs // max(1, sample.size) for sample in samples))
    rows = tuple(
        (round(float(height)), round(float(height) + pair * size * longest))
        for size, height in zip(knots, heights, strict=True)
    )
    return Table(tuple(knots), (0, longest), rows), np.abs(relative @ coefficients - 1)


def _pieces(sample: Sample, knots: Sequence[int]) -> tuple[float, ...]:
    """How often it begins, how far its sizes reach into each piece between knots, and its pairs."""
    reach = (sum(min(max(size - low, 0), high - low) for size in sample.sizes) for low, high in pairwise(knots))
    return (sample.steps, *reach, sample.pairs)
