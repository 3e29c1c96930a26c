"""Cancelling a preparation, or the request that took it over: what it costs, and what is kept."""

from __future__ import annotations

import pytest
from coresident.actors.work import SaveWork

from support.bench_host import open_bench
from support.preparing import CHUNK, KNOWN, QUESTION, at_chunk, counts, in_chunk
from support.promises import check_promises, own_segments


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("segments", range(4, 9))
def test_a_cancel_holds_nothing_back(segments, seed):
    """Cancelled anywhere, also while it makes way: it ends at once, its slot is free, and its chunks are kept."""
    host = open_bench(slots=1, seed=seed)
    known = host.prepare(KNOWN)
    at_chunk(host, segments)
    asked = host.generate((90, *QUESTION), 3)
    for _ in range(seed * 2):
        host.deliver()
    since = len(host.device.segments)
    host.cancel(known)
    host.run()
    assert own_segments(host, known, since) <= 1
    assert (host.ends[known].outcome, host.ends[asked].outcome) == ("cancelled", "completed")
    assert host.generation.statistics().open == 0
    again = host.prepare(KNOWN)
    host.run()
    assert counts(host, again) == ("prepared", 48, host.ends[known].computed, 48 - host.ends[known].computed, 0)
    host.close()


@pytest.mark.parametrize("saving", [False, True])
def test_a_cancel_while_it_makes_way_is_heard(saving):
    host = open_bench(slots=1)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 1)
    asked = host.generate((90, *QUESTION), 3)
    host.settle()
    if saving:
        host.run(until=lambda: isinstance(host.device.running.grant.step.work, SaveWork))
    host.cancel(known)
    host.run()
    assert counts(host, known) == ("cancelled", 48, 0, 16, 0)
    assert host.ends[asked].outcome == "completed"
    assert KNOWN[:16] in host.kept()
    host.close()


def test_a_cancel_at_chunk_2_of_40_costs_at_most_one_more_segment():
    host = open_bench(context=400, retained=20_000, partition=40_000)
    known = host.prepare([n % 90 for n in range(320)])
    in_chunk(host, known, 2, 1)
    since = len(host.device.segments)
    host.cancel(known)
    host.run()
    assert own_segments(host, known, since) <= 1
    assert counts(host, known) == ("cancelled", 320, 0, 16, 0)


@pytest.mark.parametrize("cancels", [True, False])
def test_a_request_that_took_over_is_cancelled_in_the_middle_of_that_chunk(cancels):
    """Before its first token: the finished chunks are kept, the next try goes on from there."""
    host = open_bench(slots=1)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 2)
    asked = host.generate(QUESTION, 5)
    host.settle()
    host.cancel(asked if cancels else known)
    host.run()
    assert host.ends[known].outcome == "promoted"
    assert host.ends[asked].outcome == ("cancelled" if cancels else "completed")
    retry = host.generate(QUESTION, 5)
    host.run()
    assert host.ends[retry].reused == (16 if cancels else 50)
    check_promises(host)
    host.close()


@pytest.mark.parametrize("seed", range(3))
def test_prepare_and_cancel_a_hundred_times_leaves_every_slot_free(seed):
    host = open_bench(slots=4, seed=seed, retained=20_000, partition=40_000, queue=200)
    for n in range(100):
        name = host.prepare((n % 7, *KNOWN), conversation=str(n % 3))
        at_chunk(host, n % 9)
        host.cancel(name)
        for _ in range(n % 5):
            host.deliver()
    asked = host.generate(QUESTION, 3)
    host.run()
    assert host.ends[asked].outcome == "completed"
    assert host.generation.statistics().slots == 4
    check_promises(host)
    host.close()


@pytest.mark.parametrize("reuse_grid", [1, CHUNK])
def test_a_cancel_behind_an_odd_number_of_reused_tokens(reuse_grid):
    host = open_bench(reuse_grid=reuse_grid)
    host.generate(KNOWN[:13], 1)
    host.run()
    known = host.prepare((*KNOWN, 70, 71))
    in_chunk(host, known, 1, 1)
    host.cancel(known)
    host.run()
    start = 13 if reuse_grid == 1 else 8
    assert counts(host, known) == ("cancelled", 48, start, 16 - start, 0)
    assert host.kept()[-1] == KNOWN[:16]
    check_promises(host)


def test_cancelled_at_60_percent_and_tried_four_times():
    """Each retry claims what was kept and no more, and nothing is computed twice."""
    tokens, kept = tuple(n % 90 for n in range(320)), [0]
    host = open_bench(context=400, retained=20_000, partition=40_000)
    for _ in range(4):
        name = host.prepare(tokens)
        host.settle()
        at_chunk(host, (320 - kept[-1]) // CHUNK * 4 * 6 // 10)
        host.cancel(name)
        host.run()
        assert host.ends[name].reused == kept[-1]
        kept.append(kept[-1] + host.ends[name].computed)
    last = host.prepare(tokens)
    host.run()
    assert counts(host, last) == ("prepared", 320, kept[-1], 320 - kept[-1], 0)
    assert 0.9 * 320 < kept[-1] < 320
    check_promises(host)
