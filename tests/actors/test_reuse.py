"""What a prompt reuses of what was computed before, and what is kept for it."""

from __future__ import annotations

from coresident.actors.errors import BackendFault
from coresident.actors.events import PrefixDropped
from coresident.actors.messages import Failed
from coresident.actors.work import StepKind
from coresident.policies.views import WorkClass

from support.bench_host import open_bench
from support.promises import check_promises

PROMPT = tuple(range(1, 42))


def test_R19_an_exact_continuation_prefills_only_the_suffix():
    host = open_bench(retained=20 * 10 * 41, partition=30_000)
    turn = host.generate(PROMPT, 6)
    host.run()
    # The last token was sampled and never fed, so its KV state is not there.
    said = host.tokens(turn)
    later = host.generate((*PROMPT, *said, 50, 51), 4)
    host.run()
    reuse = host.reuse[later]
    assert (reuse.reused, reuse.kind) == (len(PROMPT) + len(said) - 1, "exact_continuation")
    assert host.ends[later].prefilled == 3
    check_promises(host)


def test_R19_a_turn_that_follows_at_once_waits_for_the_save_and_not_for_a_prefill():
    host = open_bench()
    turn = host.generate(PROMPT, 6)
    host.run(until=lambda: turn in host.ends)
    later = host.generate((*PROMPT, *host.tokens(turn), 50, 51), 4)
    host.run()
    assert host.ends[later].prefilled == 3
    check_promises(host)


def test_R20_a_static_prefix_is_reused_when_the_history_changed():
    host = open_bench(context=256)
    host.generate((*PROMPT, 60, 61, 62), 4)
    host.run()
    other = host.generate((*PROMPT, 70, 71, 72), 4)
    host.run()
    assert (host.reuse[other].reused, host.reuse[other].kind) == (len(PROMPT), "static_prefix")
    assert host.ends[other].prefilled == 3
    check_promises(host)


def test_R18_a_utility_call_leaves_the_retained_conversation_as_it_was():
    host = open_bench(retained=10 * 60, slots=2)
    turn = host.generate(PROMPT, 6)
    host.run()
    host.generate((7, 7, 7, *PROMPT), 5, work_class=WorkClass.UTILITY, retain=False)
    host.run()
    later = host.generate((*PROMPT, *host.tokens(turn), 50), 4)
    host.run()
    assert host.ends[later].prefilled == 2


def test_R21_a_prompt_that_is_all_retained_still_computes_its_last_token():
    host = open_bench()
    host.generate(PROMPT, 6)
    host.run()
    again = host.generate(PROMPT, 6)
    host.run()
    assert (host.reuse[again].reused, host.ends[again].prefilled) == (len(PROMPT) - 1, 1)
    check_promises(host)


def test_prefixes_are_shared_inside_one_identity_only():
    host = open_bench()
    host.generate(PROMPT, 4, identity="m/one template")
    host.run()
    other = host.generate(PROMPT, 4, identity="m/another")
    host.run()
    assert host.reuse[other].matched == 0


def test_a_byte_limit_on_retained_prefixes_holds():
    """Three prefixes, each of nearly half the limit: the oldest goes."""
    host = open_bench(retained=10 * 2 * 45)
    for first in (100, 200, 300):
        host.generate((first, *PROMPT), 3)
        host.run()
    assert host.generation.statistics().prefixes.entries == 2
    assert [e.why for e in host.events if isinstance(e, PrefixDropped)] == ["evicted"]
    host.close()


def test_a_prefix_larger_than_the_limit_is_not_retained_and_evicts_nobody():
    host = open_bench(retained=10 * 30)
    host.generate(PROMPT[:20], 3)
    host.run()
    host.generate((99, *PROMPT), 3)
    host.run()
    assert [len(entry.tokens) for entry in host.generation._kv.prefixes.entries()] == [22]


def test_nothing_is_given_up_for_a_prefix_that_cannot_be_kept():
    """What it would supersede stays when a prefix in use leaves no room for it."""
    host = open_bench(retained=10 * 60)
    short = host.generate(PROMPT[:20], 3)
    host.run()
    prefixes = host.generation._kv.prefixes
    busy = prefixes.add("m/other", range(35), 0, host.at)
    host.ledger.charge("retained/m", "prefix/busy", busy.bytes)
    host.generate((*PROMPT[:20], *host.tokens(short), *PROMPT[20:]), 3)
    host.run()
    assert sorted(len(entry.tokens) for entry in prefixes.entries()) == [22, 35]
    prefixes.remove(busy.handle)


def test_a_prefix_is_not_evicted_between_its_match_and_its_use():
    """Its restore waits behind another request whose end needs the room."""
    host = open_bench(retained=10 * 50, slots=2)
    kept = host.generate(PROMPT, 4)
    host.run()
    # The slot that holds the prefix is taken by somebody else, so the next turn needs a restore.
    slots = host.generation._kv._free
    assert sum(resident is not None for resident in slots.values()) == 1
    fillers = [host.generate((90 + n, *PROMPT), 2, retain=False) for n in range(2)]
    host.run()
    turn = host.generate((*PROMPT, *host.tokens(kept), 5), 2)
    host.settle()
    assert host.device.running.grant.step.work.kind is StepKind.RESTORE
    rival = host.generate((77, *PROMPT[:30]), 1)
    host.run()
    assert host.ends[turn].prefilled == 2
    assert all(host.ends[r].outcome == "completed" for r in (*fillers, turn, rival))
    check_promises(host)


def test_a_cancelled_request_saves_nothing_that_is_retained_already():
    host = open_bench()
    host.generate(PROMPT, 6)
    host.run()
    again = host.generate((*PROMPT, 3), 6)
    host.run(until=lambda: host.reuse.get(again) is not None)
    host.cancel(again)
    host.run()
    saves = [s for s in host.device.finished if s.work.kind is StepKind.SAVE]
    assert len(saves) == 1


def raises(view, memory):
    raise ZeroDivisionError


def test_a_broken_retention_policy_is_replaced_and_reported_once():
    host = open_bench(retention=raises, retained=10 * 50)
    for first in (100, 200, 300):
        host.generate((first, *PROMPT), 3)
        host.run()
    assert [policy for policy, _ in host.faults()] == ["retention"]
    host.close()


def test_a_failed_request_retains_nothing():
    """What a slot holds after a failure is unknown."""
    host = open_bench()
    request = host.generate(PROMPT, 4)
    host.run(until=lambda: len(host.device.finished) > 4)
    host.device.inject = Failed(BackendFault("broken"))
    host.run()
    assert host.ends[request].outcome == "failed"
    assert host.generation.statistics().prefixes.entries == 0
    again = host.generate(PROMPT, 4)
    host.run()
    assert host.ends[again].prefilled == len(PROMPT)


def test_a_save_that_fails_keeps_nothing_and_frees_its_slot():
    """The request has ended for its client before; the next one finds neither a prefix nor a lost slot."""
    host = open_bench(slots=1)
    request = host.generate(PROMPT, 4)
    host.run(until=lambda: request in host.ends)
    assert host.device.running.grant.step.work.kind is StepKind.SAVE
    host.device.inject = Failed(BackendFault("broken"))
    host.run()
    assert host.generation.statistics().prefixes.used == 0
    again = host.generate(PROMPT, 4)
    host.run()
    assert (host.ends[again].outcome, host.ends[again].reused) == ("completed", 0)
    host.close()
