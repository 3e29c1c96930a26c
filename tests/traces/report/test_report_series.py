"""What a report keeps of a run of any length: bins, distributions, and what they add up to."""

from __future__ import annotations

from pathlib import Path

import pytest
from coresident.traces.quantiles import Spread
from coresident.traces.report.bins import Bins, latest, total
from coresident.traces.report.distribution import Distribution
from coresident.traces.report.gather import labels_of, read_runs, time_axes
from coresident.traces.report.levels import RESERVED, RETAINED, WORKSPACE
from hypothesis import given
from hypothesis import strategies as st

from support.reporting import EVIL, LOG, MS, ODD, busy, trace

TIMES = st.integers(0, 10**12)
SPANS = st.lists(st.tuples(TIMES, TIMES).map(sorted), min_size=1, max_size=30)


@given(SPANS)
def test_bins_stay_few_and_lose_no_nanosecond(spans: list[list[int]]) -> None:
    bins = Bins(total, most=16, width=1000)
    for begin, end in spans:
        bins.add_span("x", begin, end)
    assert sum(bins.of("x").values()) == sum(end - begin for begin, end in spans)
    assert max(bins.of("x"), default=0) < 16


@given(st.lists(TIMES, min_size=1, max_size=50))
def test_bins_that_widened_are_those_that_were_wide_from_the_start(times: list[int]) -> None:
    for combine in (total, max, latest):
        narrow = Bins(combine, most=8, width=1)
        for value, at in enumerate(sorted(times)):
            narrow.add("x", at, value)
        wide = Bins(combine, most=8, width=narrow.width)
        for value, at in enumerate(sorted(times)):
            wide.add("x", at, value)
        assert (wide.width, wide.of("x")) == (narrow.width, narrow.of("x"))


def test_a_bin_without_a_value_has_what_stood_before() -> None:
    bins = Bins(latest, width=10)
    bins.add("x", 12, 5)
    bins.add("x", 40, 7)
    assert list(bins.filled("x", 6)) == [0, 5, 5, 5, 7, 7]


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=100))
def test_few_values_are_kept_exactly(values: list[int]) -> None:
    kept = Distribution()
    for value in values:
        kept.add(value)
    spread = Spread.of(values)
    assert [kept.percentile(permille) for permille in (500, 950, 990, 1000)] == [
        spread.p50,
        spread.p95,
        spread.p99,
        spread.max,
    ]
    assert kept.cumulative()[-1] == (max(values), 1.0)


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=300), st.randoms())
def test_many_values_are_kept_nearly_in_whatever_order_they_came(values: list[int], random) -> None:
    kept, shuffled = Distribution(distinct=64), Distribution(distinct=64)
    for value in values:
        kept.add(value)
    random.shuffle(values)
    for value in values:
        shuffled.add(value)
    assert kept.cumulative() == shuffled.cumulative()
    assert len(kept.cumulative()) <= 64
    exact = sorted(values)[-(-len(values) // 2) - 1]
    assert exact * 0.5 <= kept.percentile(500) <= exact


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = trace(tmp_path_factory.mktemp("log") / "log.jsonl", LOG)
    (run,) = read_runs([path])
    return run


def test_who_had_the_device_by_hand(run) -> None:
    occupancy = run.occupancy
    ms = [("other", 0, 10), ("foreground", 20, 10), ("decision", 30, 10), ("foreground", 40, 10), ("utility", 50, 10)]
    assert [(each.lane, each.at // MS, each.ns // MS) for each in occupancy.slices] == ms
    assert [each.outcome for each in occupancy.slices if each.told] == ["suspended", "withdrawn"]
    assert occupancy.shares.of("foreground") == dict.fromkeys([*range(20, 30), *range(40, 50)], MS)
    assert occupancy.interruptions == {("foreground", "decision"): 1, ("foreground", "a cancel"): 1}
    assert (occupancy.gave_way.percentile(500), occupancy.gave_way.percentile(1000)) == (1 * MS, 3 * MS)
    # Both parts of the chunk that was withdrawn in the end are lost.
    assert occupancy.given_up == {"withdrawn": 20 * MS}


def test_who_waited_by_hand(run) -> None:
    worst = {name: run.waits.worst(name) for name in ("decision", "foreground", "utility")}
    told = {name: [(each.request, each.ns // MS, each.served) for each in entry] for name, entry in worst.items()}
    assert told == {
        "decision": [(EVIL, 5, True), ("late", 3, False)],
        "foreground": [("open", 20, False), ("g1", 0, True)],
        "utility": [(ODD, 18, True)],
    }
    assert worst["utility"][0].meanwhile == (("decision", 8 * MS), ("foreground", 10 * MS))
    assert run.waits.never == {"decision": 1, "foreground": 1}
    assert run.waits.latencies["decision"].cumulative() == [(15 * MS, 1.0)]
    assert run.waits.gaps["utility"].cumulative() == [(2 * MS, 0.5), (4 * MS, 1.0)]


def test_memory_by_hand(run) -> None:
    levels = {key: run.levels.of(key, run.statistics.span_ns) for key in (RESERVED, RETAINED, WORKSPACE)}
    assert [levels[RESERVED][ms] for ms in (0, 50, 99, 100)] == [700, 700, 700, 700]
    assert [levels[RETAINED][ms] for ms in (49, 50, 69, 70, 71)] == [0, 300, 300, 300, 0]
    # The suspended chunk stays charged while the decision runs.
    assert [levels[WORKSPACE][ms] for ms in (5, 15, 25, 35, 45, 55, 65)] == [40, 0, 40, 80, 40, 40, 0]


def test_a_long_run_keeps_bins_and_no_slices(tmp_path: Path) -> None:
    path = trace(tmp_path / "busy.jsonl", busy(300))
    (kept,), (many,) = read_runs([path], slices=300), read_runs([path], slices=299)
    assert len(kept.occupancy.slices) == kept.occupancy.count == many.occupancy.count == 300
    assert many.occupancy.slices is None
    for name in ("decision", "foreground"):
        assert sum(many.occupancy.shares.of(name).values()) == sum(
            each.ns for each in kept.occupancy.slices if each.lane == name
        )


def test_runs_get_different_labels() -> None:
    assert labels_of([Path("a/x.jsonl"), Path("b/y.jsonl")]) == ["x", "y"]
    assert labels_of([Path("a/x.jsonl"), Path("b/x.jsonl"), Path("c/z.jsonl")]) == ["a/x", "b/x", "z"]
    assert labels_of([Path("a/x.jsonl")] * 3) == ["x", "x (2)", "x (3)"]
    assert labels_of([Path("a\t.jsonl"), Path("x\x1b.jsonl")]) == ["a\\t", "x\\x1b"]


@given(st.lists(st.text("ab", min_size=1, max_size=90), min_size=1, max_size=5, unique=True))
def test_long_labels_lose_their_middle_and_stay_different(stems: list[str]) -> None:
    labels = labels_of([Path(f"{stem}.jsonl") for stem in stems])
    assert len(set(labels)) == len(labels)
    for stem, label in zip(stems, labels, strict=True):
        first, cut, last = label.partition("…")
        assert stem.startswith(first)
        assert stem.endswith(last)
        assert cut or label == stem
        assert len(label) <= len(stem)
        assert len(stem) > 40 or label == stem


def test_hashes_become_short_and_as_long_as_they_must() -> None:
    one, other = "0" * 64, "0" * 40 + "1" + "0" * 23
    assert labels_of([Path(f"{one}.jsonl"), Path("x.jsonl")]) == ["0" * 12 + "…" + "0" * 12, "x"]
    assert labels_of([Path(f"{one}.jsonl"), Path(f"{other}.jsonl")]) == [
        "0" * 24 + "…" + "0" * 24,
        "0" * 24 + "…1" + "0" * 23,
    ]


def test_runs_of_about_one_length_share_their_axis(tmp_path: Path) -> None:
    paths = [trace(tmp_path / f"{grants}.jsonl", busy(grants)) for grants in (5, 10, 60)]
    spans = [run.statistics.span_ns for run in read_runs(paths)]
    assert time_axes(read_runs(paths[:2])) == [spans[1]] * 2
    assert time_axes(read_runs(paths)) == spans
