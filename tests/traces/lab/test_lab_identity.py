"""A run's id: it changes with all that its result depends on, and with nothing else."""

from __future__ import annotations

import sys

import pytest
from coresident.traces.lab.file import samples
from coresident.traces.lab.identity import library
from coresident.traces.lab.plan import plan

from support.labs import lab_in

BASE = 'traces = ["own.jsonl"]\n[policies.a]\nordering = "own_policy:ordering"\n'
CODE = "from coresident.policies.ordering.fifo import fifo as ordering\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own.jsonl").write_bytes(samples()["chat"].read_bytes())
    (tmp_path / "own_policy.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_policy", raising=False)
    return tmp_path


def id_of(folder, text=BASE):
    (run,) = plan(lab_in(folder, text))
    return run.id


def test_names_folders_and_formats_are_no_part_of_it(folder):
    base = id_of(folder)
    assert id_of(folder, BASE.replace("policies.a", "policies.b")) == base
    assert id_of(folder, BASE + '[output]\nfolder = "x"\nformat = "parquet"') == base
    assert id_of(folder, "record = true\nseeds = [0]\n" + BASE) == base
    assert id_of(folder, 'devices = [{name = "mine"}]\n' + BASE) == base
    (folder / "own.jsonl").rename(folder / "moved.jsonl")
    assert id_of(folder, BASE.replace("own.jsonl", "moved.jsonl")) == base


@pytest.mark.parametrize(
    "text",
    [
        "seeds = [1]\n" + BASE,
        BASE.replace('["own.jsonl"]', '[{file = "own.jsonl", limit = 6}]'),
        BASE.replace("own_policy:ordering", "fifo"),
        BASE + 'quantum = {name = "fixed", tokens = 9}',
        BASE + "[generation]\nsequences = 5",
        BASE + "[limits]\nrequests = 5",
        "decision = false\n" + BASE,
        'devices = [{partition = "3 GiB"}]\n' + BASE,
    ],
)
def test_all_that_a_lab_says_is_part_of_it(folder, text):
    assert id_of(folder, text) != id_of(folder)


def test_the_content_of_the_trace_the_users_own_code_and_the_library_are_part_of_it(folder, monkeypatch):
    ids = {id_of(folder)}
    (folder / "own_policy.py").write_text(CODE + "# changed\n")
    ids.add(id_of(folder))
    (folder / "own.jsonl").write_bytes(samples()["cancels"].read_bytes())
    ids.add(id_of(folder))
    monkeypatch.setattr("coresident.traces.lab.plan.library", lambda: "0.0.1+other")
    ids.add(id_of(folder))
    assert len(ids) == 4


def test_the_library_is_its_version_and_a_digest_of_its_sources():
    from coresident import __version__

    version, _, digest = library().partition("+")
    assert version == __version__
    assert len(digest) == 16
