"""The decision check: finite scores that depend on the row alone, at the lengths where padding has gone wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .batched import ROW_TOLERANCE
from .checks import SKIPPED, Bench, Finding, drain

NAME = "decision"
LENGTHS = (1, 127, 128, 129, 255, 256, 257, 288)
FEW = (1, 127, 128, 129)
"""One position to both sides of a power of two, where masks of padded rows have given NaN, and one beyond."""
SHORT = 9
INSTRUCTION = 32
TOLERANCE = ROW_TOLERANCE
"""Float16 products over another shape differ by less."""

Scores = tuple[float, ...]


def check_decision(bench: Bench, lengths: Sequence[int] = LENGTHS) -> Iterator[Finding]:
    """Two rows at a time behind one instruction: a short one, and one of each length, in both places."""
    fitting = [length for length in lengths if INSTRUCTION + length <= bench.request.decision_context]
    if not bench.request.heads or bench.request.decision_slots < 2 or not fitting:
        yield Finding(NAME, "two rows", SKIPPED, "this model has no heads here, or no room for two rows")
        return
    instruction = bench.tokens(INSTRUCTION, seed=9)
    bench.prefill(0, instruction, role="decision")
    drain(bench.backend.copy(bench.model, "decision", 0, (1,), INSTRUCTION))
    apart = finite = 0
    worst = 0.0
    short = bench.tokens(SHORT, seed=10)
    short_alone = _alone(bench, 0, short)
    for length in fitting:
        long = bench.tokens(length, seed=length)
        long_alone = _alone(bench, 0, long)
        pairs = (
            (_pair(bench, long, short), (long_alone, short_alone)),
            (_pair(bench, short, long), (short_alone, long_alone)),
        )
        for got, expected in pairs:
            for one, other in zip(got, expected, strict=True):
                finite += all(math.isfinite(value) for value in one)
                difference = _apart(one, other)
                apart, worst = apart + (difference > TOLERANCE), max(worst, difference)
    yield from _found(fitting, finite, apart, worst)
    yield _control(bench, short, short_alone)


def _found(lengths: Sequence[int], finite: int, apart: int, worst: float) -> Iterator[Finding]:
    rows = 4 * len(lengths)
    sizes = f"{rows} rows of {', '.join(map(str, lengths))} tokens beside one of {SHORT}"
    yield Finding.of(NAME, "scores are finite", finite == rows, f"{finite} of {sizes}", rows=rows, finite=finite)
    detail = "bit-equal" if worst == 0 else f"within {worst:.2g} (tolerance {TOLERANCE:g})"
    if apart:
        detail = f"{apart} of {rows} differ, by up to {worst:.2g} (tolerance {TOLERANCE:g})"
    yield Finding.of(NAME, "a row alone is as beside another", not apart, detail, rows=rows, difference=worst)


def _control(bench: Bench, row: Sequence[int], alone: Scores) -> Finding:
    """Scores have to depend on the row."""
    vocabulary = bench.backend.describe(bench.model).vocabulary
    difference = _apart(_alone(bench, 1, [(row[0] + 1) % vocabulary, *row[1:]]), alone)
    detail = f"one other token changes scores by {difference:.2g}"
    return Finding.of(NAME, "negative control", difference > 0, detail, difference=difference)


def _alone(bench: Bench, slot: int, row: Sequence[int]) -> Scores:
    return bench.score([(slot, INSTRUCTION, row)])[0]


def _pair(bench: Bench, first: Sequence[int], second: Sequence[int]) -> list[Scores]:
    return bench.score([(0, INSTRUCTION, first), (1, INSTRUCTION, second)])


def _apart(one: Scores, other: Scores) -> float:
    """The largest difference as a share of the value; infinite where one is not finite."""
    differences = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(one, other, strict=True)]
    return max((each if math.isfinite(each) else math.inf for each in differences), default=math.inf)
