"""What a grant reports of its time: the same on both hosts, and for grants that were given up."""

from __future__ import annotations

import pytest
from coresident.actors.effects import AskYield
from coresident.actors.events import Granted, Released
from coresident.actors.work import StepKind
from coresident.runtime.backends.contract import Segment

from support.live import LONG, Heard, desk, run
from support.virtual import Sim, config

PROMPT = "The sea is wide and the wind is"


class Grants:
    """An observer that pairs grants with their ends."""

    def __init__(self) -> None:
        self.ended: list[tuple[Granted, Released]] = []
        self._granted: dict[int, Granted] = {}

    def delivered(self, delivery) -> None:
        for event in delivery.events():
            if isinstance(event, Granted):
                self._granted[event.grant] = event
            elif isinstance(event, Released):
                self.ended.append((self._granted[event.grant], event))

    def of(self, kind: StepKind, outcome: str = "finished") -> list[Released]:
        return [end for grant, end in self.ended if grant.kind is kind and end.outcome == outcome]

    def token(self, request: str, index: int, at: int) -> None: ...

    def dropped(self, error: Exception) -> None:
        raise error


def live() -> Grants:
    grants = Grants()

    async def main():
        asked = Heard(AskYield)
        async with desk([grants, asked]) as it:
            await it.scheduler.generate(PROMPT, max_tokens=9, ignore_stop_tokens=True)
            held = it.backend.hold("prefill", 2)
            async with it.scheduler.generate(LONG, max_tokens=9) as stream:
                await held.reached()
                stream.cancel()
                await asked.event.wait()
                held.release()

    run(main)
    return grants


def virtual() -> Grants:
    grants = Grants()
    it = Sim(config())
    it.host.observers.add(grants)
    it.generate(0, "g", 31, 9)
    it.generate(1000, "c", range(500, 600), 9)
    it.cancel(1005, "c")
    it.run()
    return grants


@pytest.mark.parametrize("host", [live, virtual])
def test_a_decoded_token_is_one_segment_and_a_withdrawn_grant_has_its_time(host):
    grants = host()
    assert sum(end.measured.segments for end in grants.of(StepKind.DECODE)) == 8
    (given_up,) = grants.of(StepKind.PREFILL, "withdrawn")
    assert given_up.measured.segments == 2
    assert given_up.measured.device_ns > 0
    assert given_up.measured.workspace > 0


def test_what_runs_after_the_last_segment_is_one_more_on_both_hosts(monkeypatch):
    """A backend need not yield at its end."""
    monkeypatch.setattr("coresident.runtime.backends.modelled.ModelledBackend.warm", _one_then_more)
    monkeypatch.setattr("coresident.runtime.backends.reference.ReferenceBackend.warm", _one_then_more)
    seen = Grants()

    async def main():
        async with desk([seen]):
            pass

    run(main)
    it = Sim(config())
    warmed = [line for line in it.log.deliveries if "message=GrantEnded(" in line][-1]
    assert "segments=2" in warmed
    assert [end.measured.segments for end in seen.of(StepKind.WARMUP)] == [2]


def _one_then_more(self, model, workspace):
    yield Segment()
