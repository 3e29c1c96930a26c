"""Every lifecycle table, walked pair by pair."""

from __future__ import annotations

import itertools

import pytest
from coresident.actors.errors import InvalidTransition
from coresident.actors.lifecycle import TABLES, Lifecycle

FIRST = {"device": "idle", "step": "waiting", "generation": "queued", "decision": "queued", "readiness": "new"}
LAST = {
    "device": {"closed"},
    "step": {"ended"},
    "generation": {"ended"},
    "decision": {"ended"},
    "readiness": {"closed"},
}


def states(kind):
    return {FIRST[kind], *TABLES[kind].values(), *(state for state, _ in TABLES[kind])}


def pairs():
    for kind, table in TABLES.items():
        events = sorted({event for _, event in table})
        yield from itertools.product([kind], sorted(states(kind)), events)


def reachable(kind, start):
    found, edge = {start}, [start]
    while edge:
        state = edge.pop()
        for (before, _), after in TABLES[kind].items():
            if before == state and after not in found:
                found.add(after)
                edge.append(after)
    return found


def test_every_kind_is_known_here():
    assert FIRST.keys() == LAST.keys() == TABLES.keys()


@pytest.mark.parametrize(("kind", "state", "event"), list(pairs()))
def test_a_pair_is_in_the_table_or_refused_with_the_history(kind, state, event):
    thing = Lifecycle(kind, "it", state)
    after = TABLES[kind].get((state, event))
    assert thing.can(event) == (after is not None)
    if after is not None:
        assert thing.to(event) == thing.state == after
        return
    with pytest.raises(InvalidTransition, match=rf"{kind} it cannot {event} while {state}") as caught:
        thing.to(event)
    assert caught.value.details == {"state": state, "event": event, "history": (state,)}
    assert thing.state == state


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_no_state_is_unreachable_and_none_is_a_dead_end_but_the_last(kind):
    assert reachable(kind, FIRST[kind]) == states(kind)
    for state in states(kind):
        assert reachable(kind, state) & LAST[kind]
    assert {s for s in states(kind) if reachable(kind, s) == {s}} == LAST[kind]


def test_an_illegal_transition_tells_the_story():
    step = Lifecycle("step", "generation/7", "waiting")
    step.to("grant")
    step.to("suspend")
    with pytest.raises(
        InvalidTransition, match=r"it can: drop, fault, grant, withdraw.*-grant-> granted -suspend-> suspended"
    ):
        step.to("end")
