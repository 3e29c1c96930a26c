"""Sweeps: the same results whoever carries them out, kept at once, and failures that stay with their run."""

from __future__ import annotations

import json

import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.traces.lab.crews import Crew, Kind, crew
from coresident.traces.lab.identity import library
from coresident.traces.lab.plan import plan
from coresident.traces.lab.store import Store
from coresident.traces.lab.sweep import Progress, sweep

from support.labs import SMALL, Counted, lab_in, swept
from support.parts import require_or_skip


@pytest.fixture
def _as_it_is_now():
    """Workers that start now read the library's sources now."""
    library.cache_clear()


KILLING = """
traces = ["chat"]
[policies.plain]
ordering = "support.lab_policies:plain"
[policies.killing]
ordering = "support.lab_policies:killing"
[policies.fifo]
ordering = "fifo"
"""


@pytest.mark.usefixtures("_as_it_is_now")
def test_processes_give_the_same_results_and_one_that_dies_is_reported_for_its_run(tmp_path):
    """The killing run takes a worker with it, once beside another run and once alone; the others are not harmed."""
    killing(tmp_path, crew("processes", 2))


def killing(folder, workers):
    """One run kills the worker that carries it out."""
    lab = lab_in(folder, KILLING)
    done, table = swept(lab, workers)
    plain, killing, fifo = (run.id for run in plan(lab))
    assert done.failed == 1
    assert done.results[killing]["error"]["type"] == "WorkerLost"
    assert b"out of memory" in table
    whole = lab_in(folder, KILLING.replace('[policies.killing]\nordering = "support.lab_policies:killing"', ""))
    serial, _ = swept(whole, crew("serial"), folder / "serial")
    assert {plain, fifo} == set(serial.results)
    assert all(comparable(done.results[id]) == comparable(serial.results[id]) for id in serial.results)


def comparable(result):
    return {key: value for key, value in result.items() if key != "cpu_ns"}


def test_threads_and_this_process_write_the_same_bytes(tmp_path):
    lab = lab_in(tmp_path)
    _, serial = swept(lab, crew("serial"), tmp_path / "serial")
    _, threads = swept(lab, crew("threads", 3), tmp_path / "threads")
    assert serial == threads
    assert len(serial.splitlines()) > len(plan(lab))


@pytest.mark.usefixtures("_as_it_is_now")
def test_a_cluster_gives_the_same_results_and_one_that_dies_is_reported_for_its_run(tmp_path):
    try:
        import distributed  # noqa: F401
    except ImportError:
        require_or_skip("cluster", "install it with: pip install coresident[cluster]")
    killing(tmp_path, crew("cluster", 1))


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path):
    lab = lab_in(tmp_path)
    first, second, third = Counted(until=5), Counted(), Counted()
    with pytest.raises(KeyboardInterrupt):
        swept(lab, first.crew)
    done, table = swept(lab, second.crew)
    ids = [run.id for run in plan(lab)]
    assert (first.ran, second.ran) == (ids[:5], ids[5:])
    assert done.kept == 5
    again, same = swept(lab, third.crew)
    assert (third.ran, again.kept) == ([], len(ids))
    assert table == same == swept(lab, crew("serial"), tmp_path / "fresh")[1]


def test_a_damaged_result_is_done_again_and_named(tmp_path):
    lab, again = lab_in(tmp_path), Counted()
    _, table = swept(lab, crew("serial"))
    runs, store = plan(lab), Store(lab.folder)
    cut, digit, empty, another, other = harmed = [store.path(run) for run in runs[1:6]]
    another.write_text(store.path(runs[0]).read_text())
    cut.write_text(cut.read_text()[:200])
    steps = json.loads(digit.read_text())["result"]["steps"]
    digit.write_text(digit.read_text().replace(f'"steps": {steps}', f'"steps": {steps + 1}'))
    empty.write_text("")
    other.write_text("[]")
    done, same = swept(lab, again.crew)
    assert again.ran == [run.id for run in runs[1:6]]
    assert done.damaged == tuple(map(str, harmed))
    assert (done.kept, same) == (len(runs) - 5, table)
    assert swept(lab, Counted(until=0).crew)[0].damaged == ()


def test_a_failed_run_is_a_row_the_others_go_on_and_it_is_tried_again(tmp_path):
    lab = lab_in(
        tmp_path,
        """
        traces = ["chat"]
        [policies.raising]
        ordering = "support.lab_policies:raising"
        [policies.strict]
        [[devices]]
        name = "roomy"
        partition = "2 GiB"
        [[devices]]
        name = "tiny"
        partition = 1024
        """,
    )
    done, table = swept(lab, crew("serial"))
    errors = [(done.results[run.id]["error"] or {}).get("type") for run in plan(lab)]
    assert errors == ["PolicyFault", None, "BudgetExceeded", "BudgetExceeded"]
    assert done.failed == 3
    assert b"this policy divides by zero" in table
    assert b"are missing" in table
    again = Counted()
    assert swept(lab, again.crew)[1] == table
    assert again.ran == [run.id for run, error in zip(plan(lab), errors, strict=True) if error]


def test_progress_counts_what_was_kept(tmp_path):
    lab, seen = lab_in(tmp_path), []
    with pytest.raises(KeyboardInterrupt):
        swept(lab, Counted(until=4).crew)
    swept(lab, crew("serial"), on_progress=seen.append)
    assert seen == [Progress(done, 6, 4) for done in range(4, 7)]


def test_runs_that_are_the_same_are_carried_out_once(tmp_path):
    lab = lab_in(tmp_path, 'traces = ["chat"]\n[policies.one]\n[policies.two]\nordering = "strict"\n')
    counted = Counted()
    _, table = swept(lab, counted.crew)
    assert len(counted.ran) == 1
    assert [line.split(b",")[2] for line in table.splitlines()[1:]] == [b"one", b"one", b"two", b"two"]


def test_a_recorded_run_writes_its_trace_and_is_done_again_when_that_is_gone(tmp_path):
    from coresident.traces.reader import TraceReader

    lab = lab_in(tmp_path, "record = true\n" + SMALL)
    _, table = swept(lab, crew("serial"))
    runs = plan(lab)
    failing = SMALL.replace("[policies.strict]", "[policies.own]\nordering = 'support.lab_policies:raising'")
    assert swept(lab_in(tmp_path, "record = true\n" + failing), crew("serial"))[0].failed == 2
    assert {path.name for path in (lab.folder / "traces").iterdir()} == {run.record.name for run in runs}
    assert runs[1].record.name == f"chat-aging_rate_1.0-default_model-0-{runs[1].id[:8]}.jsonl"
    with TraceReader(runs[0].record) as reader:
        assert len({event.request for event in reader if type(event).__name__.startswith("Arrive")}) == 6
    runs[1].record.rename(runs[1].record.with_name(f"{runs[1].record.name}.part"))
    counted = Counted()
    assert swept(lab, counted.crew)[1] == table
    assert counted.ran == [runs[1].id]
    plain = lab_in(tmp_path, SMALL, "plain.toml")
    assert swept(plain, crew("serial"))[1] == table


def test_a_worker_with_another_library_or_another_trace_is_refused(tmp_path, monkeypatch):
    (tmp_path / "own.jsonl").write_bytes(lab_in(tmp_path).traces[0].path.read_bytes())
    lab = lab_in(tmp_path, 'traces = ["own.jsonl"]')
    runs = plan(lab)
    with (tmp_path / "own.jsonl").open("ab") as file:
        file.write(b"\n")
    done = sweep(runs, Store(lab.folder), crew("serial"))
    assert "not the file that the runs were planned with" in done.results[runs[0].id]["error"]["message"]
    monkeypatch.setattr("coresident.traces.lab.sweep.library", lambda: "0.0.1+other")
    with pytest.raises(InvalidRequest, match=r"a worker has 0\.0\.1\+other"):
        sweep(runs, Store(lab.folder), crew("serial"))


def test_workers_that_cannot_start_are_no_fault_of_a_run(tmp_path):
    from concurrent.futures import Executor, Future
    from concurrent.futures.process import BrokenProcessPool
    from contextlib import nullcontext

    class Broken(Executor):
        def submit(self, *_, **__):
            future = Future()
            future.set_exception(BrokenProcessPool("it ended abruptly"))
            return future

    lab = lab_in(tmp_path)
    with pytest.raises(BackendFault, match="can't start: it ended abruptly"):
        swept(lab, Crew(lambda _: nullcontext(Broken()), 2))
    assert list((lab.folder / "runs").iterdir()) == []


def test_workers_that_do_not_answer_are_not_waited_for_without_end(tmp_path, monkeypatch):
    from concurrent.futures import Executor, Future
    from contextlib import nullcontext

    class Silent(Executor):
        def submit(self, *_, **__):
            return Future()

    monkeypatch.setattr("coresident.traces.lab.sweep.ANSWER_S", 0)
    with pytest.raises(BackendFault, match="no worker has answered within 0 s"):
        swept(lab_in(tmp_path), Crew(lambda _: nullcontext(Silent()), 2))


def test_what_an_executor_has_no_use_of_is_refused():
    with pytest.raises(InvalidRequest, match="workers is 2: this process has its own number"):
        crew("serial", 2)
    with pytest.raises(InvalidRequest, match=r"workers is 2: the cluster tcp://host:1 has its own"):
        crew("cluster", 2, "tcp://host:1")
    with pytest.raises(InvalidRequest, match=r"^the executor 'serial' has no use of the cluster x"):
        crew(Kind.SERIAL, None, "x")
    with pytest.raises(InvalidRequest, match=r"'threads' has no use of the cluster tcp://host:1"):
        crew("threads", None, "tcp://host:1")


def test_an_unknown_executor_and_a_folder_that_is_a_file_are_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="no executor is called 'gpu'"):
        crew("gpu")
    (tmp_path / "lab-results").write_text("")
    with pytest.raises(InvalidRequest, match=r"results can't be kept in .*output\.folder"):
        Store(lab_in(tmp_path).folder)
