"""Retained prefixes with one head: stored once, counted once, and given up only when nobody needs them.

The bench compares the bytes of actor, ledger and storage whenever no message is on its way, and its storage refuses a
head that is not the same to the bit.
"""

from __future__ import annotations

from itertools import permutations

import pytest
from coresident.actors.errors import BackendFault, DeviceLost
from coresident.actors.events import PrefixDropped, PrefixRetained
from coresident.actors.messages import Failed, PinConversation, ReleaseConversation
from coresident.actors.work import SaveWork, StepKind

from support.bench_host import open_bench
from support.promises import check_promises

HEAD = tuple(range(1, 42))
NAMES = ("one", "two", "three")


def tail(name):
    return tuple(range(60 + 10 * NAMES.index(name), 65 + 10 * NAMES.index(name)))


def opened(*names, **fields):
    """A bench on which each conversation has had a turn behind the same head, one after the other."""
    host = open_bench(**{"block": 4, "slots": 2, **fields})
    for name in names:
        host.generate(HEAD + tail(name), 3, conversation=name)
        host.run()
    return host


def retained(host):
    return [event for event in host.events if isinstance(event, PrefixRetained)]


def dropped(host):
    return [(event.why, event.tokens, event.bytes) for event in host.events if isinstance(event, PrefixDropped)]


def next_turn(host, name):
    """The same conversation once more; the tokens that its prompt found retained."""
    request = host.generate(HEAD + tail(name), 3, conversation=name)
    host.run()
    check_promises(host)
    return host.ends[request].reused


def test_two_conversations_with_one_head_hold_it_once():
    host = opened("one", "two")
    first, second = retained(host)
    assert (first.tokens, first.bytes, first.shared, first.base) == (48, 480, 0, None)
    assert (second.tokens, second.bytes, second.shared, second.base) == (48, 80, 40, first.handle)
    now = host.generation.statistics().prefixes
    assert (now.used, now.shared) == (560, 400)
    host.close()


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids=" ".join)
def test_whoever_goes_first_the_others_keep_the_head(order):
    host = opened(*NAMES)
    left = list(NAMES)
    for name in order:
        host.send("generation", ReleaseConversation(name))
        host.settle()
        left.remove(name)
        assert host.generation.statistics().prefixes.used == (400 + 80 * len(left) if left else 0)
        for other in left:
            assert next_turn(host, other) == 45
    host.close()


def test_a_pinned_conversation_outlives_the_release_of_the_one_it_shares_a_head_with():
    host = opened("one", "two", retained=600)
    host.send("generation", PinConversation("two"))
    host.send("generation", ReleaseConversation("one"))
    host.settle()
    assert dropped(host) == [("released", 48, 80)]
    host.generate((99, *HEAD[:20]), 3)
    host.run()
    assert dropped(host)[1:] == []
    assert next_turn(host, "two") == 45
    host.close()


def test_eviction_frees_what_nobody_shares_and_goes_on_until_that_is_enough():
    host = opened("one", "two", retained=600)
    host.generate((99, *HEAD[:6]), 3)
    host.run()
    assert dropped(host) == [("evicted", 48, 80)]
    host.generate((98, *HEAD[:30]), 3)
    host.run()
    assert dropped(host)[1:] == [("evicted", 48, 480)]
    host.close()


def test_an_entry_that_frees_nothing_is_not_offered_to_the_policy():
    """A pinned conversation that another one continues lies whole in that one's storage."""
    offered = []

    def look(view, memory):
        offered.append({entry.handle: entry.bytes for entry in view.entries})
        return view.entries[0].handle, memory

    host = open_bench(block=4, slots=2, retained=640, retention=look)
    host.generate(HEAD[:36], 1, conversation="one")
    host.run()
    host.send("generation", PinConversation("one"))
    host.generate(HEAD, 2, conversation="two")
    host.run()
    host.send("generation", PinConversation("one", pinned=False))
    host.settle()
    assert [(e.tokens, e.bytes) for e in retained(host)] == [(36, 360), (42, 60)]
    host.generate((99, *HEAD[:25]), 1)
    host.run()
    assert offered == [{2: 60}]
    host.close()


def test_only_what_is_the_same_to_the_bit_is_shared():
    """Decoded tokens of one conversation, prefilled in another: equal ids are not equal states."""
    host = open_bench(block=4, slots=2)
    first = host.generate(HEAD[:16], 12, conversation="one")
    host.run()
    said = host.tokens(first)
    cold = host.generate((*HEAD[:16], *said, *tail("two")), 2, conversation="two", identity="m/other")
    host.run()
    assert host.ends[cold].reused == 0
    again = host.generate((*HEAD[:16], *said[:10], *tail("three")), 2, conversation="three")
    host.run()
    assert host.ends[again].reused == 26
    assert [event.shared for event in retained(host)] == [0, 0, 24]
    third = host.generate((*HEAD[:16], *said[:10], *tail("one")), 2, conversation="one", identity="m/other")
    host.run()
    assert retained(host)[-1].shared == 24
    assert host.ends[third].reused == 26
    host.close()


def test_two_that_ran_at_once_share_what_both_prefilled_in_whole_chunks():
    host = open_bench(block=4, slots=2)
    for name in ("one", "two"):
        host.generate(HEAD[:18] + tail(name), 3, conversation=name)
    host.run()
    assert [(event.tokens, event.shared) for event in retained(host)] == [(25, 0), (25, 16)]
    host.close()


def test_what_a_save_is_stored_behind_stays_until_it_has_ended():
    """The base is the oldest, and somebody else's save needs room meanwhile."""
    host = opened("one", "three", retained=48 * 10 + 2 * 80 + 200)
    later = host.generate(HEAD + tail("two"), 3, conversation="two")
    host.run(until=lambda: later in host.ends)
    saving = host.device.running.grant.step.work
    assert isinstance(saving, SaveWork)
    base = saving.base
    rival = host.generate((99, *HEAD[:18]), 2)
    assert host.generation._kv.prefixes.get(base).users == 1
    host.send("generation", ReleaseConversation("one"))
    host.send("generation", ReleaseConversation("three"))
    host.settle()
    assert host.generation._kv.prefixes.get(base) is not None
    host.run()
    assert host.ends[rival].outcome == "completed"
    assert next_turn(host, "two") == 45
    host.close()


@pytest.mark.parametrize("sticky", [False, True])
def test_a_save_that_fails_leaves_the_head_to_those_who_had_it(sticky):
    host = opened("one")
    later = host.generate(HEAD + tail("two"), 3, conversation="two")
    host.run(until=lambda: later in host.ends)
    assert host.device.running.grant.step.work.kind is StepKind.SAVE
    host.device.inject = Failed(DeviceLost("gone") if sticky else BackendFault("broken"), sticky)
    host.run()
    if sticky:
        assert host.generation.statistics().prefixes.used == 0
        host.recover("retry")
        host.run()
    assert host.generation.statistics().prefixes.used == (0 if sticky else 480)
    assert next_turn(host, "one") == (0 if sticky else 45)
    assert all(entry.users == 0 for entry in host.generation._kv.prefixes.entries())
    host.close()


def test_where_there_is_no_room_behind_a_base_the_base_makes_room():
    """Sharing 8 tokens would keep 40 others that have to go."""
    host = open_bench(block=4, slots=2, retained=600)
    host.generate(HEAD + tail("one"), 3)
    host.run()
    host.generate(HEAD[:10] + tuple(range(60, 100)), 3)
    host.run()
    assert dropped(host) == [("evicted", 48, 480)]
    assert [(event.tokens, event.shared) for event in retained(host)] == [(48, 0), (52, 0)]
    host.close()


def test_a_backend_that_keeps_prefixes_whole_is_asked_for_nothing_else():
    host = opened("one", "two", block=0)
    assert [(event.bytes, event.shared, event.base) for event in retained(host)] == [(480, 0, None)] * 2
    assert host.generation.statistics().prefixes.shared == 0
    host.close()
