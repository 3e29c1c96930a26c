"""Small scenarios that broke other schedulers, each with its whole log under virtual time."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest

from support.virtual import COST, MS, UTILITY, Sim, config


def sim(**sections):
    return Sim(config(**sections))


@pytest.mark.parametrize("chunk", [256, 1024, 4096])
def test_a_decision_inside_a_16k_prefill_waits_for_one_segment(chunk):
    """Whatever the chunk, a quarter of it is the most that is waited for."""
    it = sim(generation={"context": 16_385, "chunk": chunk}, device={"workspace": "64 MiB"})
    it.generate(0, "g", 16_384)
    arrivals = [5, 999.5, 3000, 8191, 12_345.25]
    for n, at in enumerate(arrivals):
        it.decide(at, f"d{n}")
    it.run()
    segment = chunk / 4
    served = 4.0 * len(arrivals)
    for n, _ in enumerate(arrivals):
        assert it.wait_of(f"d{n}") <= segment
        assert it.log.ends[f"d{n}"].outcome == "completed"
    assert it.log.ended_at["g"] == (16_384 + served) * MS
    assert it.assembly.device.statistics().drops == 0


def test_a_decision_inside_a_prefill_whole_log():
    it = sim()
    it.generate(0, "g", 48, 2)
    it.decide(17, "d", rows=(3, 3, 3))
    assert it.run() == [
        "0 g prefill",
        "16 g prefill",
        "20 generation/2 suspended",
        "20 d decision",
        "26 d decision",
        "29 d completed",
        "29 g resumes",
        "41 g prefill",
        "57 g decode",
        "67 g completed length",
        "67 g save",
    ]


def test_a_long_prefill_does_not_freeze_a_stream():
    """The stream's gap is one chunk and its own run, not 9,100 tokens."""
    it = sim(
        generation={"context": 9_200, "chunk": 256, "retained": 0}, policies={"quantum": {"name": "fixed", "tokens": 1}}
    )
    it.generate(0, "stream", 16, 40)
    it.generate(20, "long", 9_100)
    it.run()
    times = it.log.tokens["stream"]
    assert max(later - earlier for earlier, later in pairwise(times)) == (256 + 10) * MS
    assert max(it.log.ended_at.values()) == (16 + 9_100 + 39 * 10) * MS


def test_the_next_grant_is_the_decisions_when_every_slot_is_full():
    it = sim(policies={"quantum": {"name": "fixed", "tokens": 2}})
    for n in range(6):
        it.generate(0, f"g{n}", 4, 20, retain=False)
    it.decide(101, "d")
    it.run(200)
    started = {request: [at for at in starts if at > 101 * MS] for request, starts in it.log.starts.items()}
    assert min(started, key=lambda request: started[request][:1] or [1 << 60]) == "d"
    assert it.wait_of("d") <= 10
    assert it.log.lines.count("108 d decision") == 1


def test_a_suspended_chunk_resumes_where_it_was():
    """Preempted at every segment of every chunk, it computes each segment once."""
    it = sim()
    it.generate(0, "g", 64)
    arrivals = [4 * n + 1 + 2 * n for n in range(16)]
    for n, at in enumerate(arrivals):
        it.decide(at, f"d{n}", rows=(2,))
    it.run()
    assert it.log.ended_at["g"] == (64 + 2 * 15) * MS, "the last one came in the last segment"
    assert it.assembly.device.statistics().drops == 0
    assert it.log.ends["g"].prefilled == 64


BESIDE = [
    "0 g prefill",
    "4 generation/1 suspended",
    "4 d0 decision",
    "8 d0 completed",
    "8 g resumes",
    "12 generation/1 suspended",
    "12 d1 decision",
    "16 d1 completed",
    "16 g resumes",
    "24 g completed length",
]
INSTEAD = [
    "0 g prefill",
    "4 generation/1 suspended",
    "4 generation/1 dropped",
    "4 d0 decision",
    "8 d0 completed",
    "8 g prefill",
    "24 g completed length",
    "24 d1 decision",
    "28 d1 completed",
]


@pytest.mark.parametrize(("workspace", "expected"), [(20, BESIDE), (16, INSTEAD)])
def test_the_urgent_class_finds_room_beside_or_in_place_of_a_chunk(workspace, expected):
    """With room for both the chunk is suspended; with none it gives way, once, and is not asked to again."""
    it = sim(device={"workspace": f"{workspace} KiB"}, decision={"rows_per_slice": 1})
    it.generate(0, "g", 16, retain=False)
    it.decide(1, "d0", rows=(4,))
    it.decide(9, "d1", rows=(4,))
    assert it.run() == expected


def test_a_step_that_does_not_fit_stops_nobody_else():
    """A slice larger than the workspace is refused with its numbers, the others go on."""
    it = sim(device={"workspace": "16 KiB"}, decision={"rows_per_slice": 1})
    it.generate(0, "g", 16, 5)
    it.decide(2, "wide", rows=(200,))
    it.decide(2, "small", rows=(4,))
    it.run()
    assert (it.log.ends["wide"].outcome, it.log.ends["wide"].reason) == ("abstained", "over_budget")
    assert "204800 bytes" in str(it.log.ends["wide"].error)
    assert it.log.ends["small"].outcome == it.log.ends["g"].outcome == "completed"


def test_a_decisions_deadline_inside_a_long_generation():
    """Without suspension it may come too late: then it abstains at its deadline, not when it is its turn."""
    slow = attrs.evolve(COST, suspend=False)
    it = Sim(config(generation={"chunk": 256}), slow)
    it.generate(0, "g", 256, 3)
    it.decide(10, "d", deadline=50)
    it.decide(10, "e", deadline=300)
    lines = it.run()
    assert "50 d abstained deadline" in lines
    assert "260 e completed" in lines
    assert not any(grant.request == "d" for grant in it.log.grants)


def test_a_deadline_in_the_middle_of_a_decision_ends_it_at_its_segment():
    it = sim()
    it.decide(0, "d", rows=(8,) * 4, deadline=5)
    it.generate(1, "g", 16, retain=False)
    assert it.run() == [
        "0 d decision",
        "6 decision/1 withdrawn",
        "6 d abstained deadline",
        "6 g prefill",
        "22 g completed length",
    ]


def test_a_decision_that_cannot_be_in_time_abstains_before_it_takes_the_device_again():
    it = sim()
    it.decide(0, "d", rows=(8,) * 10, deadline=33)
    assert it.run() == ["0 d decision", "16 d abstained deadline"]


def test_a_cancel_at_chunk_2_of_40_costs_one_segment():
    it = sim()
    it.generate(0, "g", 640, 10)
    it.cancel(17, "g")
    assert it.run() == [
        "0 g prefill",
        "16 g prefill",
        "20 generation/2 withdrawn",
        "20 g cancelled cancelled",
        "20 g save",
    ]
    assert it.assembly.generation.statistics().prefixes.entries == 1


def test_a_cancel_before_the_first_token():
    it = sim()
    it.generate(0, "g", 16, 10)
    it.cancel(0, "g")
    it.generate(1, "next", 16, 1)
    lines = it.run()
    assert "4 g cancelled cancelled" in lines or "0 g cancelled cancelled" in lines
    assert it.log.ends["next"].outcome == "completed"
    assert "g" not in it.log.tokens


def test_after_a_timeout_the_retry_starts_within_a_segment():
    it = sim(generation={"sequences": 1})
    it.generate(0, "g", 16, 2_000, deadline=121, retain=False)
    it.generate(121, "retry", 16, 1, retain=False)
    lines = it.run()
    assert lines[-3:] == ["126 g cancelled deadline", "126 retry prefill", "142 retry completed length"]
    assert it.log.ends["g"].tokens == 12


def test_a_cancel_is_heard_inside_a_long_decode_run():
    it = sim(policies={"quantum": {"name": "fixed", "tokens": 1024}})
    it.generate(0, "g", 16, 1024, retain=False)
    it.cancel(500, "g")
    assert it.run() == ["0 g prefill", "16 g decode", "506 g cancelled cancelled"]
    assert it.log.ends["g"].tokens == 1 + 49


def test_stop_and_new_chat_20_times():
    """The gate is free each time, and no chat waits for more than the segment of the one before."""
    it = sim(generation={"sequences": 1})
    for n in range(20):
        start = 10 * n
        it.generate(start, f"g{n}", range(1000 * n, 1000 * n + 640), 10, retain=False)
        it.cancel(start + 9, f"g{n}")
    it.run()
    assert {end.outcome for end in it.log.ends.values()} == {"cancelled"}
    assert all(it.wait_of(f"g{n}") <= 4 for n in range(20))


def test_100_aborts_leave_4_slots_free():
    it = sim(generation={"sequences": 4})
    for n in range(100):
        it.generate(3 * n, f"g{n}", range(n, n + 40), 50, work_class=UTILITY if n % 3 == 0 else 1)
        it.cancel(3 * n + 1 + 7 * (n % 5), f"g{n}")
    it.run()
    assert len(it.log.ends) == 100
    assert {end.outcome for end in it.log.ends.values()} == {"cancelled"}
    assert it.assembly.generation.statistics().slots == 4
    it.generate(it.host.now / MS + 1, "after", 40, 5)
    it.run()
    assert it.log.ends["after"].outcome == "completed"
    it.close()


def test_a_cancelled_40k_prefill_keeps_its_chunks_and_finishes_at_the_fifth_try():
    """Cancelled at 60 % of what was left, four times: what completed is not computed again, nothing else is claimed."""
    it = sim(generation={"context": 40_001, "chunk": 1000, "retained": "64 MiB"}, device={"workspace": "2 MiB"})
    kept, computed = 0, 0
    for n in range(5):
        start = it.host.now / MS
        it.generate(start, f"g{n}", 40_000)
        if n < 4:
            it.cancel(start + (40_000 - kept) * 0.6, f"g{n}")
        it.run()
        reused = it.log.reuse[f"g{n}"]
        end = it.log.ends[f"g{n}"]
        assert (reused.reused, reused.matched, end.reused) == (kept, kept, kept)
        assert reused.kind == ("none" if n == 0 else "exact_continuation")
        computed += end.prefilled
        kept += end.prefilled
        assert kept == 40_000 or kept % 1000 == 0
    assert computed == 40_000
    assert it.log.ends["g4"].outcome == "completed"
