"""What was imported can be replayed in virtual time: everything ends, lengths are the source's, times are kept."""

from __future__ import annotations

import json

import pytest
import trio
from coresident.traces.importers import FORMATS
from coresident.traces.replay import ReplayOptions, replay
from imported_traces import BURSTGPT, SMALL, asked, imported, session


def replayed(folder, name, text, **settings):
    imported(folder, name, text, **settings)
    return trio.run(replay, folder / "out.jsonl", ReplayOptions(backend="modelled"))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_replays_to_its_end(tmp_path, name):
    report = replayed(tmp_path, name, SMALL[name])
    assert report.comparison.same
    assert report.statistics.classes["foreground"].tokens > 0


def test_a_workload_of_every_kind_of_derived_work_replays_as_recorded(tmp_path):
    talk = [asked(float(10 * n), 100 + 60 * n, list(range((100 + 60 * n) // 64)), 2.0) for n in range(5)]
    report = replayed(tmp_path, "weka", json.dumps(session(requests=talk)), prepare=True, decide_before_turns=True)
    assert report.comparison.same
    assert report.comparison.compared == 5
    counts = {name: entry.requests for name, entry in report.statistics.classes.items()}
    assert counts == {"foreground": 5, "decision": 5, "preparation": 4}
    assert report.statistics.classes["foreground"].reused > 0


def test_a_request_that_failed_at_its_source_is_no_difference(tmp_path):
    report = replayed(tmp_path, "burstgpt", BURSTGPT)
    assert report.comparison.same
    assert report.statistics.classes["foreground"].requests == 3


def test_a_prompt_that_no_device_of_the_default_size_holds_is_refused_and_the_rest_runs(tmp_path):
    rows = [
        json.dumps({"timestamp": n, "input_length": tokens, "output_length": 2, "hash_ids": [n] * -(-tokens // 512)})
        for n, tokens in enumerate((100, 2**22, 200))
    ]
    entry = replayed(tmp_path, "mooncake", "\n".join(rows)).statistics.classes["foreground"]
    assert (entry.completed, dict(entry.refused)) == (2, {"ContextExceeded": 1})
