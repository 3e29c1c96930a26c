"""Non-negative coefficients with the least sum of absolute relative deviations.

Least absolute deviations don't follow the few steps that something else on the machine made slow; they are found by
iteratively reweighted least squares (Schlossmacher, JASA 1973). Relative ones let short steps count like long ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
_ROUNDS = 60
_CLOSE = 1e-7
_APART = 1e-3


def told(relative: Matrix, order: Sequence[int]) -> tuple[int, ...]:
    """The columns that samples can tell apart, those that come first in ``order`` before others."""
    chosen: list[int] = []
    for column in order:
        if not relative[:, column].any() or len(relative) <= len(chosen):
            continue
        candidate = relative[:, [*chosen, column]]
        scaled = candidate / np.linalg.norm(candidate, axis=0)
        if np.linalg.svd(scaled, compute_uv=False)[-1] > _APART:
            chosen.append(column)
    return tuple(sorted(chosen))


def least_absolute(relative: Matrix, columns: tuple[int, ...]) -> Matrix:
    """A coefficient for each column of features over times, 0 for those not in ``columns``: a few, as all subsets of
    them are tried.
    """
    coefficients = np.zeros(relative.shape[1])
    weights = np.ones(len(relative))
    for _ in range(_ROUNDS):
        before = coefficients
        coefficients = _least_squares(relative, weights, columns)
        weights = 1 / np.maximum(np.abs(relative @ coefficients - 1), _CLOSE)
        if np.allclose(before, coefficients, rtol=1e-9, atol=0):
            break
    return coefficients


def _least_squares(relative: Matrix, weights: Matrix, columns: tuple[int, ...]) -> Matrix:
    """Weighted least squares: the best of all subsets of columns that has no negative coefficient."""
    root = np.sqrt(weights)
    best, best_error = np.zeros(relative.shape[1]), float("inf")
    for subset in _subsets(columns):
        part = relative[:, subset] * root[:, None]
        scale = np.linalg.norm(part, axis=0)
        found = np.linalg.lstsq(part / scale, root, rcond=None)[0] / scale
        if (found < 0).any():
            continue
        error = float((((part @ found) - root) ** 2).sum())
        if error < best_error:
            best, best_error = np.zeros(relative.shape[1]), error
            best[list(subset)] = found
    return best


def _subsets(columns: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for count in range(len(columns), 0, -1):
        yield from combinations(columns, count)
