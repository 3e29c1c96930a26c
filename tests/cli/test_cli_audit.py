"""``coresident audit``: a clear verdict, the first difference in words, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import coresident.traces
import pytest
from coresident.traces.codec import encode
from coresident.traces.header import header_of
from coresident.traces.reader import TraceReader

from support.commands import write_trace
from support.virtual import Sim

SAMPLES = sorted((Path(coresident.traces.__file__).parent / "samples").glob("*.jsonl"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_samples_come_out_as_recorded(cli, sample):
    ended = cli("audit", sample)
    assert (ended.code, ended.err) == (0, "")
    assert "messages came out as recorded, over " in ended.out
    body = cli("audit", sample, "--json").json()
    assert (body["same"], body["divergence"]) == (True, None)
    assert body["messages"] > 20


def changed(sample: Path, path: Path, policy: str) -> Path:
    """The sample as if another ordering policy had made it."""
    lines = sample.read_bytes().splitlines(keepends=True)
    header = json.loads(lines[0])
    header["policies"]["ordering"] = {"name": policy}
    return write_trace(path, [json.dumps(header).encode() + b"\n", *lines[1:-1]])


def test_the_first_difference_is_shown_with_the_messages_before_it(cli, tmp_path):
    path = changed(SAMPLES[-1], tmp_path / "other.jsonl", "fifo")
    ended = cli("audit", path)
    assert ended.code == 1
    for words in ("then one did not", "Its lines in the trace:", "The same lines now:", "The messages before it:"):
        assert words in ended.out
    body = cli("audit", path, "--json").json()
    assert body["same"] is False
    assert len(body["divergence"]["before"]) == 8
    with TraceReader(path) as reader:
        took = next(event for event in reader if reader.line == body["divergence"]["line"])
    assert (took.actor, took.message) == (body["divergence"]["actor"], body["divergence"]["message"])


@pytest.mark.parametrize("how", ["a line is gone", "another policy", "another number", "cut"])
def test_a_file_that_was_changed_is_named_as_that_and_not_as_a_fault_of_the_scheduler(cli, tmp_path, how):
    lines = SAMPLES[-1].read_bytes().splitlines(keepends=True)
    took = next(place for place, line in enumerate(lines) if line.startswith(b'{"type":"took"') and place > 30)
    header = json.loads(lines[0])
    if how == "another policy":
        header["policies"]["ordering"] = {"name": "fifo"}
        lines[0] = json.dumps(header).encode() + b"\n"
    elif how == "another number":
        lines[took] = lines[took].replace(b'"digest":"', b'"digest":"0')
    elif how == "cut":
        lines = lines[:took]
    else:
        del lines[took]
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(lines))
    ended = cli("audit", path)
    assert (ended.code, ended.out) == (cli("show", path).code, "")
    assert ended.err.startswith("coresident: the trace was changed or cut: ")
    assert str(path) in ended.err


def test_what_cannot_be_audited_is_refused_with_what_to_do(cli, tmp_path):
    bare = write_trace(tmp_path / "bare.jsonl", [encode(header_of(Sim().assembly, messages=False))])
    ended = cli("audit", bare)
    assert (ended.code, ended.out) == (2, "")
    assert "recorded without messages" in ended.err
    assert cli("audit", tmp_path / "none.jsonl").code == 2
    own = changed(SAMPLES[0], tmp_path / "own.jsonl", "mine:policy")
    ended = cli("audit", own)
    assert (ended.code, ended.out) == (2, "")
    assert "--policy ordering=mine:policy" in ended.err


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        (("ordering",), "give KIND=MODULE:ATTRIBUTE"),
        (("ordering=strict",), "give KIND=MODULE:ATTRIBUTE"),
        (("ordering=a:b", "ordering=c:d"), "names the ordering policy twice"),
        (("taste=a:b",), "no policies of kind taste"),
        (("ordering=a:b",), "an audit uses that one"),
    ],
)
def test_policies_that_have_no_meaning_are_refused(cli, policies, words):
    options = [part for policy in policies for part in ("--policy", policy)]
    ended = cli("audit", SAMPLES[0], *options)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
