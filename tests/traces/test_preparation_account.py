"""What prepared tokens were worth: a hand-written log against figures computed by hand, and sums that always hold."""

from __future__ import annotations

import pytest
from coresident.traces.events_schedule import (
    Advance,
    Drop,
    EndGeneration,
    EndPreparation,
    Grant,
    Measures,
    Ready,
    Refuse,
    Retain,
    Reuse,
    Seat,
    Step,
    Tokens,
)
from coresident.traces.events_workload import ArriveGeneration, ArrivePreparation, Content
from coresident.traces.preparations import Use
from coresident.traces.reader import TraceReader
from coresident.traces.statistics import Tally
from coresident.traces.workload import load_workload
from traced_runs import prepared_chat, record_chat

MODEL = "generation"


def prepare(at, request, tokens, conversation="c"):
    return ArrivePreparation(at, request, Content(tokens, ()), 10, "i", conversation)


def arrive(at, request, tokens):
    return ArriveGeneration(at, request, "foreground", Content(tokens, ()), 10, "i")


def chunk(at, number, request, tokens, device_ns, outcome="finished", work_class="preparation", resumed=False):
    """A prefill grant of ``tokens`` and its end; a resumed one goes on with the same step."""
    step = f"generation/{number - resumed}"
    yield Grant(at, number, step, MODEL, (request,), work_class, "prefill", 0, 0, resumed, 1, tokens, tokens)
    yield Step(at + 1, number, step, outcome, Measures(0, device_ns, 2, device_ns, 1000 if resumed else device_ns))


def answer(at, request, prompt, reused, tokens=1):
    if tokens:
        yield Tokens(at, request, (5,) * tokens)
    outcome = "completed" if tokens else "cancelled"
    yield EndGeneration(at, request, outcome, "length", prompt, reused, prompt - reused, tokens)


LOG = (
    Ready(0, 1, "ready", 1000),
    # p1 computes 200 tokens in two chunks, the first interrupted: 400 + 600 ns of device time, then 1000 ns.
    prepare(10, "p1", 230),
    Seat(10, "p1", 0),
    *chunk(10, 1, "p1", 100, 400, "suspended"),
    *chunk(20, 2, "p1", 100, 600, resumed=True),
    Advance(30, "p1", 100, 200),
    *chunk(30, 3, "p1", 100, 1000),
    Advance(40, "p1", 200, 200),
    EndPreparation(40, "p1", "prepared", 200, 0, 200),
    Retain(50, MODEL, 1, 200, 2000, "p1"),
    # g1 reuses 150 of them out of prefix 1, and leaves a longer one behind: 30 more tokens of p1 are in neither.
    arrive(60, "g1", 300),
    Reuse(60, "g1", 300, 150, 150, "static_prefix", 1),
    *chunk(60, 4, "g1", 150, 4000, work_class="foreground"),
    *answer(70, "g1", 300, 150),
    Retain(80, MODEL, 2, 300, 3000, "g1"),
    # p2 goes on behind g1; p3 supersedes it at token 400 and shares 360 with it, g2 takes p3 over at 420.
    prepare(90, "p2", 500),
    Seat(90, "p2", 300, 2),
    Advance(91, "p2", 400, 500),
    prepare(92, "p3", 500),
    Seat(92, "p3", 360, taken_from="p2"),
    EndPreparation(92, "p2", "superseded", 500, 300, 100, 40),
    Advance(93, "p3", 420, 500),
    arrive(94, "g2", 510),
    Reuse(94, "g2", 510, 430, 420, "static_prefix", taken_from="p3"),
    EndPreparation(94, "p3", "promoted", 500, 360, 60),
    # It is cancelled before its first token: its reuse counts, and saved no time.
    *answer(95, "g2", 510, 420, tokens=0),
    Retain(96, MODEL, 3, 510, 5100, "g2"),
    Drop(97, MODEL, 1, 200, 2000, "evicted"),
    # A later request finds the same again: nothing is used twice.
    arrive(98, "g3", 511),
    Reuse(98, "g3", 511, 510, 510, "exact_continuation", 3),
    *answer(99, "g3", 511, 510),
    # p4 is evicted unused, p5 is there at the end, p6 is never retained, p7 is refused, p8 does not end.
    *(prepare(100, "p4", 64, "d"), Seat(100, "p4", 0), Advance(101, "p4", 64, 64)),
    EndPreparation(101, "p4", "prepared", 64, 0, 64),
    *(Retain(102, MODEL, 4, 64, 640, "p4"), Drop(103, MODEL, 4, 64, 640, "evicted")),
    *(prepare(104, "p5", 32, "e"), Seat(104, "p5", 0), Advance(105, "p5", 32, 32)),
    EndPreparation(105, "p5", "prepared", 32, 0, 32),
    *(Retain(106, MODEL, 5, 32, 320, "p5"), Drop(107, MODEL, 5, 32, 320, "closed")),
    *(prepare(108, "p6", 16, "f"), Seat(108, "p6", 0), Advance(109, "p6", 16, 16)),
    EndPreparation(109, "p6", "failed", 16, 0, 16, error="Closed"),
    *(prepare(110, "p7", 9999), Refuse(110, "p7", "ContextExceeded")),
    *(prepare(111, "p8", 40), Seat(111, "p8", 0), Advance(112, "p8", 20, 40)),
)


@pytest.fixture(scope="module")
def statistics():
    tally = Tally()
    for event in LOG:
        tally.add(event)
    return tally.result()


@pytest.fixture(scope="module")
def accounts(statistics):
    return {account.request: account for account in statistics.preparation.accounts}


def test_a_token_of_this_run_took_the_mean_of_all_finished_chunks(statistics):
    # 1000 for the interrupted step as a whole, 1000, and 4000: for 100, 100 and 150 tokens.
    assert statistics.preparation.prefill_token_ns == pytest.approx(6000 / 350)


def test_a_prefix_that_is_reused_in_part(accounts):
    """Of 200 tokens 150 are used; the rest goes with prefix 1."""
    p1 = accounts["p1"]
    assert (p1.computed, p1.used, p1.kept, p1.evicted, p1.wasted) == (200, 150, 0, 50, 0)
    assert p1.uses == (Use("g1", 150, round(150 * 6000 / 350)),)
    assert (p1.at, p1.ended_at, p1.outcome, p1.goal, p1.preemptions) == (10, 40, "prepared", 200, 1)


def test_superseded_and_taken_over(accounts):
    """Of p2's tokens 300 to 400 those up to 360 live on in p3, and are g2's with p3's own 60."""
    p2, p3 = accounts["p2"], accounts["p3"]
    assert (p2.computed, p2.used, p2.wasted, p2.reused) == (100, 60, 40, 300)
    assert (p3.computed, p3.used, p3.wasted) == (60, 60, 0)
    assert p2.uses == (Use("g2", 60, 0),)
    assert p3.uses == (Use("g2", 60, 0),)


@pytest.mark.parametrize(
    ("request_id", "outcome", "parts"),
    [
        ("p4", "prepared", (0, 0, 64, 0)),
        ("p5", "prepared", (0, 32, 0, 0)),
        ("p6", "failed", (0, 0, 0, 16)),
        ("p7", "refused", (0, 0, 0, 0)),
        ("p8", None, (0, 0, 0, 20)),
    ],
)
def test_what_nobody_used(accounts, request_id, outcome, parts):
    account = accounts[request_id]
    assert account.outcome == outcome
    assert (account.used, account.kept, account.evicted, account.wasted) == parts
    assert account.uses == ()


def test_all_together(statistics):
    total, foreground = statistics.preparation, statistics.classes["foreground"]
    assert total.outcomes == {
        "failed": 1,
        "open": 1,
        "prepared": 3,
        "promoted": 1,
        "refused": 1,
        "superseded": 1,
    }
    assert (total.computed, total.reused) == (200 + 100 + 60 + 64 + 32 + 16 + 20, 300 + 360)
    assert (total.used, total.kept, total.evicted, total.wasted) == (150 + 60 + 60, 32, 50 + 64, 40 + 16 + 20)
    assert (total.preemptions, total.saved_ns) == (1, round(150 * 6000 / 350))
    # g1: 150 of p1; g2 and g3: these, 60 of p2 and 60 of p3.
    assert foreground.prepared == 150 + 270 + 270
    assert statistics.device.classes == {"preparation": 2000, "foreground": 4000}
    assert statistics.device.share("preparation") == pytest.approx(1 / 3)
    entry = statistics.classes["preparation"]
    assert (entry.completed, entry.cancelled, entry.open) == (4, 1, 1)
    assert (entry.failed, entry.refused) == ({"Closed": 1}, {"ContextExceeded": 1})


def test_a_run_without_preparation_has_no_account():
    tally = Tally()
    for event in (LOG[0], arrive(5, "g", 20), *answer(6, "g", 20, 0)):
        tally.add(event)
    assert tally.result().preparation is None


def test_the_account_of_a_recorded_run_agrees_with_what_the_scheduler_said(tmp_path):
    record_chat(tmp_path / "t.jsonl", story=prepared_chat)
    with TraceReader(tmp_path / "t.jsonl") as reader:
        ends = {event.request: event for event in reader if isinstance(event, EndPreparation)}
    total = load_workload(tmp_path / "t.jsonl").recorded.preparation
    accounts = {account.request: account for account in total.accounts}
    assert {name: (end.outcome, end.reused, end.computed, end.wasted) for name, end in ends.items()} == {
        name: (accounts[name].outcome, accounts[name].reused, accounts[name].computed, accounts[name].wasted)
        for name in ends
    }
    assert accounts["ahead"].preemptions == 1
    assert [use.request for use in accounts["whole"].uses] == ["turn2"]
    assert total.used + total.kept + total.evicted + total.wasted == total.computed > total.used > 0
