"""What a preparation is worth to those that come after it: taken over, superseded, saved for them, or cancelled."""

from __future__ import annotations

import pytest
from coresident.actors.events import Granted, PreparationSeated
from coresident.actors.work import PrefillWork, SaveWork
from coresident.policies.views import WorkClass

from support.bench_host import open_bench
from support.preparing import KNOWN, QUESTION, at_chunk, counts, in_chunk
from support.promises import check_promises

CHAT_A, CHAT_B = (*KNOWN[:24], *range(100, 140)), (*KNOWN[:24], *range(200, 240))


def withdrawn_chunks(host):
    return [s for s in host.device.segments if s.step.step in host.withdrawn and isinstance(s.step.work, PrefillWork)]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("says", ["", "chat"])
def test_a_request_that_continues_it_takes_it_over_chunk_in_flight_included(slots, says):
    host = open_bench(slots=slots)
    known = host.prepare(KNOWN, conversation="chat")
    in_chunk(host, known, 2, 2)
    asked = host.generate(QUESTION, 5, conversation=says)
    host.settle()
    assert counts(host, known) == ("promoted", 48, 0, 16, 0)
    assert (host.reuse[asked].reused, host.reuse[asked].taken_from) == (16, known)
    host.run()
    assert not withdrawn_chunks(host)
    assert host.prefilled(known) + host.prefilled(asked) == list(range(len(QUESTION)))
    assert {e.kind.value for e in host.events if isinstance(e, Granted)}.isdisjoint({"restore"})
    check_promises(host)
    host.close()


def test_a_suspended_chunk_that_is_taken_over_goes_on_before_what_is_less_urgent():
    host = open_bench(slots=3)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 1, 1)
    utility = host.generate((90, *KNOWN), 9, work_class=WorkClass.UTILITY)
    host.run(until=lambda: host.device.running.grant.step.request == utility)
    assert len(host.device.suspended) == 1
    asked = host.generate(QUESTION, 5)
    host.run()
    (resumed,) = [e for e in host.events if isinstance(e, Granted) and e.resumed and e.request != utility]
    assert (resumed.request, resumed.work_class) == (asked, WorkClass.FOREGROUND)
    assert list(host.ends) == [known, asked, utility]
    check_promises(host)


def test_the_chunk_in_flight_is_given_up_when_the_request_ends_within_it():
    host = open_bench()
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 2)
    asked = host.generate(KNOWN[:20], 5)
    host.run()
    assert (host.ends[known].outcome, host.reuse[asked].reused) == ("promoted", 16)
    assert host.tokens(asked)
    assert withdrawn_chunks(host)
    check_promises(host)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("segments", range(7, 14))
def test_a_takeover_racing_with_the_end_of_the_chunk(segments, seed):
    """Whatever is delivered first, and also when a shorter prompt doesn't want the chunk."""
    host = open_bench(seed=seed, slots=1 + seed % 2)
    known = host.prepare(KNOWN)
    at_chunk(host, segments)
    host.segment()
    asked = host.generate(QUESTION if seed % 3 else KNOWN[:18], 5)
    for _ in range(seed % 7):
        host.deliver()
    host.segment()
    host.run()
    assert host.ends[known].outcome in ("promoted", "prepared")
    assert host.ends[asked].outcome == "completed"
    check_promises(host)
    host.close()


@pytest.mark.parametrize("slots", [1, 2])
def test_make_way_for_a_request_that_shares_nothing(slots):
    """With the only slot it saves and leaves; with another one free it just waits."""
    host = open_bench(slots=slots)
    known = host.prepare(KNOWN)
    in_chunk(host, known, 2, 1)
    asked = host.generate(range(300, 320), 3)
    host.run(until=lambda: asked in host.ends)
    assert known in host.open
    saves = [s for s in host.device.finished if isinstance(s.work, SaveWork)]
    assert [s.work.tokens for s in saves] == ([16] if slots == 1 else [])
    host.run()
    assert counts(host, known) == ("prepared", 48, 0, 48, 0)
    check_promises(host)
    host.close()


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_suspended_preparation_never_resumes_against_another_chat(slots):
    """Another chat with the same head uses that head; the preparation keeps its own and goes on with its own."""
    host = open_bench(slots=slots, retained=20_000, partition=40_000)
    known = host.prepare(CHAT_A, conversation="a")
    in_chunk(host, known, 4, 2)
    other = host.generate((*CHAT_B, 9), 5, conversation="b")
    host.run()
    assert counts(host, known) == ("prepared", 64, 0, 64, 0)
    assert host.reuse[other].reused == 24
    assert host.prefilled(known) == list(range(64))
    turn = host.generate((*CHAT_A, 8), 5, conversation="a")
    host.run()
    assert host.ends[turn].reused == 64
    check_promises(host)
    host.close()


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_two_conversations_are_prepared_one_after_the_other(slots):
    host = open_bench(slots=slots, retained=20_000, partition=40_000)
    first, second = host.prepare(CHAT_A, conversation="a"), host.prepare(CHAT_B, conversation="b")
    in_chunk(host, first, 4, 2)
    assert second not in host.progress
    host.run()
    assert counts(host, first) == ("prepared", 64, 0, 64, 0)
    assert counts(host, second) == ("prepared", 64, 24, 40, 0)
    check_promises(host)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_newer_preparation_of_a_conversation_takes_its_place(slots):
    """Also its place before other conversations, so that the slot that it holds is never held in vain."""
    host = open_bench(slots=slots, retained=20_000, partition=40_000)
    first, other = host.prepare(KNOWN, conversation="a"), host.prepare(CHAT_B, conversation="b")
    in_chunk(host, first, 3, 2)
    longer = host.prepare((*KNOWN, *range(70, 86)), conversation="a")
    host.settle()
    assert counts(host, first) == ("superseded", 48, 0, 24, 0)
    host.run()
    assert counts(host, longer) == ("prepared", 64, 24, 40, 0)
    assert not withdrawn_chunks(host)
    assert host.ends[other].outcome == "prepared"
    assert list(host.ends) == [first, longer, other]
    check_promises(host)


@pytest.mark.parametrize("seed", range(5))
def test_of_three_of_a_conversation_only_the_last_is_prepared(seed):
    host = open_bench(seed=seed, slots=1)
    names = [host.prepare((*KNOWN[: 30 + n], 90 + n, *KNOWN), conversation="a") for n in range(3)]
    for _ in range(seed * 3):
        host.deliver()
    host.run()
    assert [host.ends[name].outcome for name in names] == ["superseded", "superseded", "prepared"]
    check_promises(host)
    host.close()


@pytest.mark.parametrize("while_saved", [False, True])
@pytest.mark.parametrize(("reuse_grid", "kept"), [(1, 650), (64, 640)])
def test_a_late_catalog_changes_650_tokens_to_652(reuse_grid, kept, while_saved):
    """The head up to the change is kept and the rest counted as wasted, also where it was saved in between."""
    host = open_bench(
        slots=1, chunk=64, context=1200, reuse_grid=reuse_grid, retained=30_000, partition=60_000, workspace=5000
    )
    head, history = tuple(range(650)), tuple(range(2000, 2374))
    old = host.prepare((*head, *history), 650, conversation="a")
    in_chunk(host, old, 14, 1)
    if while_saved:
        host.generate(range(3000, 3010), 2, retain=False)
        host.run(until=lambda: bool(host.kept()))
    new = host.prepare((*head, 5001, 5002, *history), 652, conversation="a")
    host.run()
    assert counts(host, old) == ("superseded", 1024, 0, 896, 896 - kept)
    assert counts(host, new) == ("prepared", 1024, kept, 1024 - kept, 0)
    check_promises(host)


def test_another_identity_shares_nothing_and_doubles_nothing():
    """An option that salts the identity is another prompt; what was prepared for the first is still there."""
    host = open_bench(slots=2, retained=20_000, partition=40_000)
    plain = host.prepare(KNOWN, conversation="a")
    in_chunk(host, plain, 2, 2)
    salted = host.generate(QUESTION, 3, identity="m/chat?option", conversation="a")
    host.run()
    assert host.reuse[salted].matched == 0
    assert counts(host, plain) == ("prepared", 48, 0, 48, 0)
    assert host.prefilled(plain) == list(range(48))
    same = host.generate(QUESTION, 3, conversation="a")
    host.run()
    assert host.ends[same].prefilled == 3


def test_a_boundary_is_stored_when_it_is_said_to_be_prepared():
    host = open_bench(slots=1)
    known = host.prepare(KNOWN, standing=24)
    host.run()
    assert host.ends[known].outcome == "prepared"
    assert host.kept() == [KNOWN]
    other = host.generate((*KNOWN[:24], 99, 98), 3)
    host.run()
    assert host.ends[other].reused == 24


@pytest.mark.parametrize("slots", [1, 2])
def test_it_finishes_though_somebody_urgent_follows_every_bit_of_progress(slots):
    host = open_bench(slots=slots, retained=20_000, partition=40_000, queue=500)
    known = host.prepare(KNOWN)
    for n in range(300):
        host.run(until=lambda: host.device.running is not None and host.device.running.grant.step.request == known)
        if known in host.ends:
            break
        host.segment()
        host.generate((n, 90, *KNOWN[:3]), 1, retain=False)
        host.decide([[n, 2]])
    assert counts(host, known) == ("prepared", 48, 0, 48, 0)
    host.run()
    check_promises(host)


def test_seats_say_where_their_tokens_come_from():
    host = open_bench(slots=1)
    first = host.prepare(KNOWN[:32])
    in_chunk(host, first, 2, 1)
    second = host.prepare(KNOWN)
    host.run()
    seats = [(e.request, e.reused, e.taken_from) for e in host.events if isinstance(e, PreparationSeated)]
    assert seats == [(first, 0, None), (second, 16, first)]
