"""The live host when things break: typed errors to whom they concern, truth about readiness, and a way back."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from coresident.actors.effects import Report
from coresident.actors.errors import (
    ArtifactInvalid,
    BackendFault,
    BudgetExceeded,
    CoresidentError,
    DeviceLost,
    InvalidRequest,
)
from coresident.actors.events import ChargeExceeded, ReadinessChanged
from structlog.testing import capture_logs

from support.live import LONG, Bench, Heard, desk, run

pytestmark = pytest.mark.usefixtures("front_door")

PROMPT = "The sea is wide and the wind is"


class Readinesses:
    """An observer that keeps every change of readiness."""

    def __init__(self) -> None:
        self.seen: list[ReadinessChanged] = []

    def delivered(self, delivery) -> None:
        self.seen += [
            e.event for e in delivery.effects if isinstance(e, Report) and isinstance(e.event, ReadinessChanged)
        ]

    def token(self, request: str, index: int, at: int) -> None: ...

    def dropped(self, error: Exception) -> None:
        raise error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BackendFault("three is broken"), BackendFault),
        (RuntimeError("three is broken"), BackendFault),
        (MemoryError("three is broken"), BackendFault),
        (BudgetExceeded("three is broken", 2, 1, "x"), BudgetExceeded),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("segment", [0, 3])
def test_R9_a_fault_in_chunk_3_is_one_clients_error_and_returns_its_charge(error, kind, segment):
    async def main():
        async with desk(generation={"sequences": 2}) as it:
            expected = await it.scheduler.generate(PROMPT, max_tokens=30, retain=False)
            held = it.backend.hold("decode", skip=4)
            async with it.scheduler.generate(PROMPT, max_tokens=30, retain=False) as other:
                await held.reached()
                it.backend.fail("prefill", error, segment, skip=2)
                held.release()
                with pytest.raises(kind, match="three is broken"):
                    await it.scheduler.generate(LONG, max_tokens=3)
                assert (await other.result()).tokens == expected.tokens
            await it.settled()
            assert it.scheduler.readiness().ready
            assert (await it.scheduler.generate(LONG, max_tokens=3)).reused == 0
            assert it.backend.pending == 0

    run(main)


@pytest.mark.parametrize("operation", ["save", "restore", "decode", "score", "copy"])
def test_R9_any_kind_of_step_may_fail(operation):
    async def main():
        async with desk(generation={"sequences": 1}) as it:

            async def work():
                await it.scheduler.generate(PROMPT, max_tokens=3)
                await it.scheduler.generate("Z", max_tokens=3)
                await it.scheduler.generate(PROMPT + "!", max_tokens=3)
                await it.scheduler.decide("Food?", ["a", "b"])

            it.backend.fail(operation, RuntimeError("broken"))
            if operation == "save":
                await work()  # what was to be kept is not, and nobody is told that an answer failed
            else:
                with pytest.raises(BackendFault, match=r"RuntimeError: broken"):
                    await work()
            await it.settled()
            assert it.backend.pending == 0
            await work()
            await it.settled()

    run(main)


def test_a_measured_peak_above_the_charge_is_reported():
    async def main():
        exceeded = Heard(ChargeExceeded)
        async with desk([exceeded]) as it:
            it.backend.excess = 1 << 30
            await it.scheduler.generate(PROMPT, max_tokens=2)
            await it.settled()
            it.backend.excess = 0
            assert exceeded.event.is_set()
            count = it.scheduler.statistics().device.exceeded
            assert count >= 2
            await it.scheduler.generate(PROMPT, max_tokens=2)
            assert it.scheduler.statistics().device.exceeded == count

    run(main)


@pytest.mark.parametrize("action", ["retry", "repair"])
@pytest.mark.parametrize(
    ("operation", "skip"), [("prefill", 0), ("prefill", 3), ("decode", 2), ("score", 0), ("save", 0)]
)
def test_R6_a_lost_device_is_said_at_once_and_comes_back(action, operation, skip):
    async def main():
        log = Readinesses()
        async with desk([log], generation={"sequences": 1}) as it:
            reference = await it.scheduler.generate(LONG, max_tokens=6)
            decision = await it.scheduler.decide("Food?", ["a", "b"])
            await it.settled()
            kept = it.scheduler.statistics().generation.prefixes.entries
            assert kept == 1
            it.backend.fail(operation, DeviceLost("unplugged"), segment=operation != "save", skip=skip)
            outcomes = []

            async def client():
                try:
                    result = await it.scheduler.generate("Other " + LONG, max_tokens=6)
                    outcomes.append(result.outcome)
                except DeviceLost:
                    outcomes.append("lost")
                    assert not it.scheduler.readiness().ready

            async def decide():
                answer = await it.scheduler.decide("Food?", ["a", "b"])
                outcomes.append(answer.reason)

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(client)
                    nursery.start_soon(decide)
                while it.scheduler.readiness().ready:
                    await trio.lowlevel.checkpoint()
            assert len(outcomes) == 6
            assert "lost" in outcomes
            now = it.scheduler.readiness()
            assert (now.state, now.admitted_context, now.actions) == ("faulted", 0, ("retry", "repair"))
            with pytest.raises(DeviceLost, match="unplugged"):
                await it.scheduler.generate(PROMPT, max_tokens=2)
            abstained = await it.scheduler.decide("Food?", ["a"])
            assert (abstained.outcome, abstained.reason) == ("abstained", "unavailable")
            loads = it.backend.loads["generation"]
            assert (await getattr(it.scheduler, action)()).ready
            assert it.backend.loads["generation"] == loads + (action == "repair")
            assert it.scheduler.statistics().generation.prefixes.entries == 0
            assert it.backend._inner._residents["generation"].retained == {}
            again = await it.scheduler.generate(LONG, max_tokens=6)
            assert (again.tokens, again.reused) == (reference.tokens, 0)
            assert (await it.scheduler.decide("Food?", ["a", "b"])).scores == decision.scores
            await it.settled()
        revisions = [event.revision for event in log.seen]
        assert revisions == sorted(set(revisions))
        states = [event.state for event in log.seen]
        assert states == ["starting", "ready", "faulted", "recovering", "ready", "closing", "closed"]

    run(main)


def test_R6_a_fault_that_persists_is_raised_again_and_can_be_repaired_later():
    async def main():
        async with desk() as it:
            with pytest.raises(InvalidRequest, match="there is nothing to repair: the scheduler is ready"):
                await it.scheduler.repair()
            it.backend.fail("prefill", DeviceLost("unplugged"))
            with pytest.raises(DeviceLost, match="unplugged"):
                await it.scheduler.generate(PROMPT, max_tokens=2)
            it.backend.fail("load", DeviceLost("still unplugged"))
            with pytest.raises(DeviceLost, match="still unplugged"):
                await it.scheduler.retry()
            it.backend.fail("warm", BackendFault("shaky"))
            with pytest.raises(BackendFault, match="shaky"):
                await it.scheduler.repair()
            assert (await it.scheduler.repair()).ready
            assert (await it.scheduler.generate(PROMPT, max_tokens=2)).outcome == "completed"
            await it.settled()

    run(main)


def test_R6_closing_a_faulted_scheduler_returns_everything():
    async def main():
        async with desk() as it:
            it.backend.fail("decode", DeviceLost("unplugged"))
            with pytest.raises(DeviceLost):
                await it.scheduler.generate(LONG, max_tokens=5)

    run(main)


@pytest.mark.parametrize("operation", ["load", "warm"])
@pytest.mark.parametrize(
    "error", [ArtifactInvalid("torn"), DeviceLost("torn"), RuntimeError("torn"), MemoryError("torn")]
)
def test_a_load_that_fails_is_raised_by_opening(operation, error):
    async def main():
        bench = Bench()
        bench.backend.fail(operation, error)
        with pytest.raises(CoresidentError, match="torn") as caught:
            async with bench.open():
                raise AssertionError("opened")
        assert type(caught.value) is (type(error) if isinstance(error, CoresidentError) else BackendFault)
        bench.check_closed()

    run(main)


@pytest.mark.parametrize("operation", ["drop", "unload"])
def test_housekeeping_that_fails_is_not_lost_and_stops_no_close(operation):
    async def main():
        log = Readinesses()
        async with desk([log]) as it:
            it.backend.fail(operation, RuntimeError("stuck"))
            for prompt in (LONG, LONG + "more"):
                await it.scheduler.generate(prompt, max_tokens=1)
            while operation == "drop" and it.scheduler.readiness().ready:
                await trio.lowlevel.checkpoint()
        assert ("faulted" in [event.state for event in log.seen]) == (operation == "drop")

    with capture_logs() as logs:
        run(main)
    errors = [(entry["event"], entry["error"]) for entry in logs if entry["log_level"] == "error"]
    assert errors == [("device.housekeeping_failed", "RuntimeError('stuck')")]
