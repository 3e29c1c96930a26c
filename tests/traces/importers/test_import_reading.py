"""Reading an imported trace: what its header promises is checked, and nothing is held for it."""

from __future__ import annotations

import pytest
from coresident.actors.errors import TraceInvalid
from coresident.traces.blocks import BlockNotes
from coresident.traces.codec import Malformed, encode
from coresident.traces.events_schedule import EndGeneration
from coresident.traces.events_workload import ArriveGeneration, Content
from coresident.traces.importers.heading import imported_header
from imported_traces import read

from support.commands import write_trace


def arrival(request, at=0):
    return ArriveGeneration(at, request, "foreground", Content(5, (1,)), 3, "m")


def end(request, at=0):
    return EndGeneration(at, request, "failed", "", 5, 0, 0, 0)


def written(path, *events, ends=False):
    header = imported_header("azure", 64, 0, decisions=False, ends=ends)
    return write_trace(path, [encode(header), *map(encode, events)])


def test_requests_without_ends_are_read_with_only_the_latest_one_open(tmp_path):
    events = [arrival("r9"), arrival("r10"), end("r10"), arrival("r11")]
    assert read(written(tmp_path / "t", *events))[1] == events


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([arrival("r2"), arrival("r1")], "'r1', not after 'r2': ids ascend where no ends are told"),
        ([arrival("r10"), arrival("r9")], "'r9', not after 'r10'"),
        ([arrival("r1"), end("r1"), arrival("r1")], "'r1', not after 'r1'"),
        ([arrival("r1"), arrival("r1")], "'r1', which has already arrived"),
        ([arrival("r1"), arrival("r2"), end("r1")], "'r1', which has not arrived or has ended"),
        ([arrival("r1"), end("r1"), end("r1")], "'r1', which has not arrived or has ended"),
    ],
)
def test_what_a_header_without_ends_promises_is_checked(tmp_path, events, what):
    with pytest.raises(TraceInvalid, match=what):
        read(written(tmp_path / "t", *events))


def test_where_ends_are_told_ids_may_have_any_order(tmp_path):
    events = [arrival("r2"), arrival("r1"), end("r2"), end("r1")]
    assert read(written(tmp_path / "t", *events, ends=True))[1] == events


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (Content(65, (1,)), "blocks are 1 of 64 tokens, for 65 tokens"),
        (Content(64, (1, 2)), "blocks are 2 of 64 tokens, for 64 tokens"),
        (Content(64, (0,)), "numbered from 1"),
        (Content(64, (2,), ((2, 1, 5),)), "have no shares"),
        (Content(2**24 + 1, ()), "sequences of up to 16777216 are read"),
    ],
)
def test_contents_of_a_source_are_checked_one_by_one(content, what):
    with pytest.raises(Malformed, match=what):
        BlockNotes(64, dense=False).learn(content)


def test_numbers_of_a_source_need_no_order_and_are_not_kept():
    notes = BlockNotes(64, dense=False)
    before = notes.__dict__ | {}
    for blocks in ((2**63 - 1, 7), (7, 3)):
        notes.learn(Content(100, blocks))
    assert notes.__dict__ == before
    assert not notes.shares
