"""One instant of the virtual host: who is heard first, when the device chooses, and faults by a schedule."""

from __future__ import annotations

import pytest
from coresident.actors.effects import SetTimer
from coresident.actors.errors import DeviceLost
from coresident.actors.messages import (
    Cancel,
    Recover,
    ReleaseConversation,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
    Wake,
)
from coresident.policies.views import WorkClass
from coresident.runtime.backends.modelled import ModelledBackend
from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted import ScriptedBackend
from support.virtual import COST, HEADS, UTILITY, Sim, config

KINDS = ("decide", "foreground", "utility")


class Heard:
    """Which requests were heard of, in order, and of how many before the device controller was first heard."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.before_the_device: int | None = None

    def delivered(self, delivery) -> None:
        if isinstance(delivery.message, SubmitDecision | SubmitGeneration):
            self.requests.append(delivery.message.request)
        if delivery.actor == "device" and self.before_the_device is None:
            self.before_the_device = len(self.requests)

    def dropped(self, error: Exception) -> None:
        raise error


def submit(it: Sim, at: float, kind: str, name: str) -> None:
    if kind == "decide":
        it.decide(at, name)
    else:
        it.generate(at, name, 16, retain=False, work_class=UTILITY if kind == "utility" else WorkClass.FOREGROUND)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=2, max_size=6))
def test_arrivals_of_one_instant_are_heard_by_class_then_in_order(kinds):
    it = Sim(config(generation={"sequences": 6, "retained": "0 MiB"}))
    heard = Heard()
    it.host.observers.add(heard, tokens=False)
    for number, kind in enumerate(kinds):
        submit(it, 5, kind, f"{KINDS.index(kind)} {kind} {number}")
    it.run()
    assert heard.requests == sorted(heard.requests)
    assert heard.before_the_device == len(kinds)


def test_the_device_chooses_when_all_arrivals_of_the_instant_are_in():
    """The foreground chunk was asked for first, and the device is free: the decision runs before it."""
    it = Sim()
    it.generate(3, "g", 16, retain=False)
    it.decide(3, "d")
    it.run()
    assert [grant.request for grant in it.log.grants][:2] == ["d", "g"]


def test_the_device_hears_of_its_own_grant_after_what_arrives_when_it_ends():
    it = Sim()
    it.generate(0, "g", 48, retain=False)
    it.decide(16, "d")
    it.run()
    assert [grant.request for grant in it.log.grants][:3] == ["g", "d", "g"]
    assert it.wait_of("d") == 0


def test_what_has_no_class_stays_behind_what_its_mailbox_has_got():
    it = Sim()
    it.generate(0, "first", 32, conversation="talk")
    it.run()

    def at_once() -> None:
        it.host.send("generation", SubmitPreparation("p", tuple(range(5000, 5200)), 0, "model", "other"))
        it.host.send("generation", Cancel("p"))
        it.host.send("generation", ReleaseConversation("talk"))

    it.at(500, at_once)
    it.run()
    retained = it.assembly.generation.statistics().prefixes
    assert retained.entries == 0
    assert it.assembly.generation.statistics().open == 0


@pytest.mark.parametrize("action", ["retry", "repair"])
def test_a_schedule_of_faults_is_played_in_virtual_time(action):
    """A step raises as scripted, later the device is lost, and a message brings it back."""
    backend = ScriptedBackend(ModelledBackend(COST, tuple(HEADS)))
    it = Sim(backend=backend)
    backend.fail("prefill", RuntimeError("broken"), skip=1)
    backend.fail("decode", DeviceLost("unplugged"), 1, skip=3)
    for number in range(6):
        it.generate(100 * number, f"g{number}", 16, 4, retain=False)
    it.at(250, lambda: it.host.send("supervisor", Recover(action)))
    it.run()
    outcomes = {request: end.outcome if hasattr(end, "outcome") else "refused" for request, end in it.log.ends.items()}
    assert outcomes == {
        "g0": "completed",
        "g1": "failed",
        "g2": "failed",
        "g3": "completed",
        "g4": "completed",
        "g5": "completed",
    }
    assert backend.loads["generation"] == (1 if action == "retry" else 2)
    assert backend.pending == backend.open_workspaces == 0
    it.close()


def test_timers_that_ring_without_a_grant_are_told_once_there_are_too_many():
    it = Sim()
    told = []
    it.host.in_vain(3, told.append)

    class Restless:
        """An actor that sets its timer again whenever it rings."""

        name = "restless"

        def __init__(self) -> None:
            self.rings = 0

        def handle(self, message, at):
            self.rings += 1
            return [SetTimer("restless", at + 1, self.name, Wake())] if self.rings < 6 else []

    it.host._actors["restless"] = Restless()
    it.at(1, lambda: it.host.send("restless", Wake()))
    it.run()
    assert told == ["restless"] * 3
