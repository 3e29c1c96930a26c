"""The result table: its columns, and the same content as CSV and Parquet."""

from __future__ import annotations

import csv
import io
import sys

import pytest
from coresident.actors.errors import InvalidRequest
from coresident.traces.lab.columns import COLUMNS
from coresident.traces.lab.crews import crew
from coresident.traces.lab.plan import plan
from coresident.traces.lab.store import Store
from coresident.traces.lab.sweep import sweep
from coresident.traces.lab.tables import check_format, rows, write_table, write_timing
from coresident.traces.reader import TraceReader
from coresident.traces.simulate import simulate

from support.labs import lab_in
from support.parts import require_or_skip

LAB = """
traces = ["chat", "preparation"]
[[devices]]
[[devices]]
name = "tiny, \\"no room\\""
partition = 1024
"""


@pytest.fixture
def done(tmp_path):
    lab = lab_in(tmp_path, LAB)
    runs = plan(lab)
    return lab.folder, runs, sweep(runs, Store(lab.folder), crew("serial")).results


def typed(text, kind):
    return None if text == "" else kind(text)


def read_csv(path):
    lines = csv.DictReader(io.StringIO(path.read_text(), newline=""))
    return [{column.name: typed(line[column.name], column.kind) for column in COLUMNS} for line in lines]


def test_csv_and_parquet_have_the_same_content(done):
    try:
        from pyarrow import parquet
    except ImportError:
        require_or_skip("lab", "install it with: pip install coresident[lab]")
    folder, runs, results = done
    table = rows(runs, results)
    first, second = (write_table(folder, form, table) for form in ("csv", "parquet"))
    assert (first.name, second.name) == ("results.csv", "results.parquet")
    read = parquet.read_table(second)
    assert read_csv(first) == read.to_pylist() == table
    about = {field.name: field.metadata[b"about"].decode() for field in read.schema}
    assert about == {column.name: column.about for column in COLUMNS}


def test_rows_have_the_figures_of_the_simulation(done):
    _, runs, results = done
    table = rows(runs, results)
    alone = simulate(runs[2].path, runs[2].config)
    mine = [row for row in table if row["run"] == runs[2].id]
    assert [row["work_class"] for row in mine] == list(alone.statistics.classes)
    for row in mine:
        one = alone.statistics.classes[row["work_class"]]
        assert (row["digest"], row["steps"], row["virtual_ns"]) == (alone.digest, alone.steps, alone.virtual_ns)
        assert (row["requests"], row["completed"], row["tokens"]) == (one.requests, one.completed, one.tokens)
        assert (row["queue_wait_p50_ns"], row["queue_wait_max_ns"]) == (one.queue_wait.p50, one.queue_wait.max)
        assert (row["latency_p99_ns"], row["token_gap_p99_ns"]) == (one.latency.p99, one.gaps.p99)
        assert (row["reuse_share"], row["device_utilisation"]) == (
            one.reuse_share,
            alone.statistics.device.utilisation,
        )
    prepared = next(row for row in mine if row["work_class"] == "preparation")
    assert prepared["preparation_computed_tokens"] == alone.statistics.preparation.computed > 0
    assert mine[0]["preparation_computed_tokens"] is None
    assert sum(row["device_share"] for row in mine) == pytest.approx(1)


def test_latency_is_from_arrival_to_end_of_what_completed(tmp_path):
    (run,) = plan(lab_in(tmp_path, 'record = true\ntraces = ["cancels"]'))
    results = sweep([run], Store(tmp_path), crew("serial")).results
    with TraceReader(run.record) as reader:
        events = [event for event in reader if type(event).__name__.startswith(("Arrive", "End"))]
    arrived = {event.request: event for event in events if hasattr(event, "after")}
    taken = {name: [] for name in ("foreground", "utility")}
    for event in events:
        if getattr(event, "outcome", "") == "completed":
            arrival = arrived[event.request]
            taken[arrival.work_class].append(event.at - arrival.at)
    mine = {row["work_class"]: (row["completed"], row["latency_max_ns"]) for row in rows([run], results)}
    assert mine == {name: (len(times), max(times)) for name, times in taken.items()}


def test_a_failed_run_is_one_row_with_its_error_and_no_figures(done):
    _, runs, results = done
    (row,) = [row for row in rows(runs, results) if row["run"] == runs[1].id]
    given = {name for name, value in row.items() if value is not None}
    policies = {"ordering", "quantum", "retention", "abstention", "preparation"}
    assert given == {"run", "trace", "policy", "device", "seed", "error", "error_message", *policies}
    assert (row["error"], row["device"]) == ("BudgetExceeded", 'tiny, "no room"')


def test_reasons_are_told_by_name_with_how_many(tmp_path):
    (run,) = plan(lab_in(tmp_path, 'traces = ["chat"]\n[generation]\ncontext = 80'))
    table = rows([run], sweep([run], Store(tmp_path), crew("serial")).results)
    told = {row["work_class"]: (row["refused"], row["reasons"]) for row in table}
    assert told["foreground"][0] > 0
    assert told["foreground"][1] == f"ContextExceeded: {told['foreground'][0]}"
    assert told["decision"] == (0, None)


def test_what_depends_on_the_machine_is_in_a_file_of_its_own(done):
    folder, runs, results = done
    write_timing(folder, runs, results)
    lines = list(csv.DictReader(io.StringIO((folder / "timing.csv").read_text())))
    assert [line["run"] for line in lines] == [run.id for run in runs]
    assert float(lines[0]["steps_per_cpu_s"]) > 0
    assert lines[1]["steps_per_cpu_s"] == ""
    assert not any("cpu" in column.name for column in COLUMNS)


def test_parquet_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidRequest, match=r"install coresident\[lab\], or take the format 'csv'"):
        check_format("parquet")
    check_format("csv")


def test_a_cluster_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidRequest, match=r"install coresident\[cluster\]"):
        crew("cluster")
