"""Models of a store in a worker's process: what is pinned, verified and repaired there, and how long a lease lasts."""

from __future__ import annotations

import os
import signal

import pytest
import trio
from coresident.actors.errors import ArtifactInvalid
from coresident.actors.events import ReadinessChanged
from coresident.runtime.host.artifacts import runtime_folder
from coresident.runtime.host.registry import Registry
from structlog.testing import capture_logs

from coresident import open_scheduler
from support.live import run
from support.stored_models import FILE, PROMPT, open_shop

WORKER = {"partition": "64 MiB", "workspace": "8 MiB", "executor": "process"}


@pytest.fixture
def shop(tmp_path):
    return open_shop(tmp_path)


def workers(config) -> list[int]:
    """Process ids that are published."""
    return [pid for entry in Registry(runtime_folder(config.host)).entries() for pid in entry.published.workers]


class Faulted:
    """An observer that waits for a fault."""

    def __init__(self) -> None:
        self.seen = trio.Event()

    def delivered(self, delivery) -> None:
        events = [event for event in delivery.events() if isinstance(event, ReadinessChanged)]
        if any(event.state == "faulted" for event in events):
            self.seen.set()

    def token(self, request, index, at) -> None: ...

    def dropped(self, error) -> None:
        raise error


@pytest.mark.parametrize("lost", ["damaged", "only its view is left"])
def test_R26_R27_R29_a_killed_worker_keeps_the_lease_and_a_repair_puts_back_what_was_lost(shop, lost):
    """One worker is killed while it answers, its model is damaged meanwhile, and another one is whole again."""
    config = shop.config(seed=True, device=WORKER)

    async def main():
        faulted = Faulted()
        async with open_scheduler(config, observers=[faulted]) as scheduler:
            expected = (await scheduler.generate(PROMPT, max_tokens=4)).tokens
            (first,) = workers(config)
            assert first != os.getpid()
            shop.store.deactivate("tiny")
            shop.damage() if lost == "damaged" else shop.blob.unlink()
            os.kill(first, signal.SIGKILL)
            await faulted.seen.wait()
            assert shop.store.gc().artifacts == ()
            assert shop.leases() == 1
            with capture_logs() as logs:
                await scheduler.repair()
            events = [line["event"] for line in logs]
            order = ["artifact.damaged", "artifact.replaced", "model.loaded", "model.warm"]
            assert [event for event in events if event in order] == order
            assert (await scheduler.generate(PROMPT, max_tokens=4)).tokens == expected
            (second,) = workers(config)
            assert second not in (first, os.getpid())
            return first, second

    pids = run(main, 60)
    assert shop.leases() == 0
    assert Registry(runtime_folder(config.host)).entries() == ()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_R36_a_worker_does_not_load_what_was_damaged_after_it_was_admitted(shop):
    async def main():
        bench = shop.bench(device=WORKER)
        shop.damage()
        async with bench.open():
            pytest.fail("it became ready")

    with pytest.raises(ArtifactInvalid) as refused:
        run(main, 60)
    assert FILE in refused.value.message
    assert shop.digest in refused.value.message
    assert shop.leases() == 0
