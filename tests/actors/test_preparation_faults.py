"""Preparation when steps fail, the device is lost, or everything closes."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BackendFault, DeviceLost
from coresident.actors.messages import Failed
from coresident.actors.work import StepKind

from support.bench_host import open_bench
from support.preparing import KNOWN, QUESTION, at_chunk, counts, in_chunk


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sticky", [True, False])
def test_a_fault_in_the_middle_ends_it_once_with_the_error(sticky, seed):
    host = open_bench(slots=2, seed=seed)
    known, other = host.prepare(KNOWN, conversation="a"), host.prepare((90, *KNOWN), conversation="b")
    in_chunk(host, known, 2, 1)
    host.device.inject = Failed(DeviceLost("gone") if sticky else BackendFault("broken"), sticky)
    host.run()
    assert host.ends[known].outcome == "failed"
    assert host.ends[known].computed == 16
    assert host.ends[other].outcome == ("failed" if sticky else "prepared")
    if sticky:
        host.recover("repair")
        host.run()
    again = host.prepare(KNOWN)
    host.run()
    assert counts(host, again) == ("prepared", 48, 0, 48, 0)
    host.close()


@pytest.mark.parametrize("sticky", [True, False])
def test_a_save_that_fails_while_making_way_costs_its_chunks_and_nothing_else(sticky):
    host = open_bench(slots=1)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 1)
    asked = host.generate((90, *QUESTION), 3)
    host.run(until=lambda: host.device.running.grant.step.work.kind is StepKind.SAVE)
    host.device.inject = Failed(DeviceLost("gone") if sticky else BackendFault("broken"), sticky)
    host.run()
    assert (host.ends[known].outcome, host.ends[asked].outcome) == (
        ("failed", "failed") if sticky else ("prepared", "completed")
    )
    host.close()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("segments", range(0, 30, 3))
def test_a_close_in_the_middle_ends_it_once(segments, seed):
    host = open_bench(slots=1, seed=seed)
    names = [host.prepare(KNOWN, conversation="a"), host.prepare((90, *KNOWN), conversation="b")]
    at_chunk(host, segments)
    host.generate((91, *KNOWN), 3)
    for _ in range(seed * 2):
        host.deliver()
    host.close()
    assert all(host.ends[name].outcome in ("failed", "prepared") for name in names)
