"""What the log says of a fault and of the way back, to whoever reads warnings only."""

from __future__ import annotations

from typing import Any

import pytest
from coresident.actors.errors import DeviceLost
from structlog.testing import capture_logs

from support.live import desk, run

PROMPT = "The sea is wide and the wind is"


def readiness_of(logs: list[Any]) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == "readiness"]


def test_a_fault_that_restarts_by_itself_asks_nobody_for_anything_and_is_followed_until_ready():
    async def main():
        with capture_logs() as logs:
            async with desk(limits={"restarts": 1}) as it:
                it.backend.fail("prefill", DeviceLost("unplugged"))
                assert (await it.scheduler.generate(PROMPT, max_tokens=2)).outcome == "completed"
        return readiness_of(logs)

    lines = run(main)
    told = [(line["state"], line["log_level"]) for line in lines]
    back = [("faulted", "warning"), ("recovering", "warning"), ("ready", "warning")]
    assert told == [("starting", "info"), ("ready", "info"), *back, ("closing", "info"), ("closed", "info")]
    fault = lines[2]
    assert (fault["next"], fault["error"]) == ("it restarts by itself", "DeviceLost: unplugged")
    assert "actions" not in fault


def test_a_fault_that_waits_for_a_person_names_the_ways_and_is_followed_until_ready():
    async def main():
        with capture_logs() as logs:
            async with desk() as it:
                it.backend.fail("prefill", DeviceLost("unplugged"))
                with pytest.raises(DeviceLost):
                    await it.scheduler.generate(PROMPT, max_tokens=2)
                await it.scheduler.repair()
        return readiness_of(logs)

    lines = run(main)
    assert [line["state"] for line in lines if line["log_level"] == "warning"] == ["faulted", "recovering", "ready"]
    assert lines[2]["actions"] == ["retry", "repair"]
    assert "next" not in lines[2]
