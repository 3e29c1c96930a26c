"""Leases of the live host: from before the first byte is read until nobody can read any more, however it ends."""

from __future__ import annotations

import threading

import pytest
import trio
from coresident.actors.effects import RunGrant
from coresident.actors.errors import ArtifactInvalid, BackendFault, BudgetExceeded, DeviceLost
from coresident.runtime.config import HostConfig
from coresident.runtime.host.artifacts import Holding, runtime_folder
from coresident.runtime.host.registrations import Entry
from coresident.runtime.host.registry import Registry
from structlog.testing import capture_logs

from coresident import open_scheduler
from support.cancelling import cancelled_at
from support.live import device_threads, run
from support.stored_models import PROMPT, open_shop


@pytest.fixture
def shop(tmp_path):
    return open_shop(tmp_path)


def registered() -> tuple[Entry, ...]:
    """Registrations in the folder of these tests."""
    return Registry(runtime_folder(HostConfig())).entries()


def collected(shop) -> tuple[str, ...]:
    """What a garbage collection removes now."""
    return shop.store.gc().artifacts


def test_R2_a_lease_blocks_collection_and_is_gone_after_the_block(shop):
    async def main():
        async with shop.bench().open() as desk:
            assert shop.leases() == 1
            shop.store.deactivate("tiny")
            assert collected(shop) == ()
            assert len((await desk.scheduler.generate(PROMPT, max_tokens=3)).tokens) == 3
            assert shop.leases() == 1

    with capture_logs() as logs:
        run(main)
    assert [line["event"] for line in logs if line["event"].startswith("lease")] == ["lease.taken", "lease.released"]
    assert shop.leases() == 0
    assert collected(shop) == (shop.digest,)


def test_R2_two_schedulers_have_a_lease_each_and_two_roles_of_one_model_share_one(shop):
    async def main():
        async with shop.bench().open(), shop.bench(decision={"model": "store:tiny", "context": 64}).open():
            assert shop.leases() == 2

    run(main)
    assert shop.leases() == 0


@pytest.mark.parametrize("operation", ["load", "unload"])
def test_R2_a_lease_outlives_the_scheduler_for_as_long_as_its_device_reads(shop, operation):
    """Cancelled while the device stands in the middle of something: it lets go when the device's thread has ended."""

    async def main():
        bench = shop.bench()
        ended = trio.Event()

        async def opened():
            with trio.CancelScope() as scope:
                scopes.append(scope)
                async with bench.open():
                    pass
            ended.set()

        scopes: list[trio.CancelScope] = []
        held = bench.backend.hold(operation, 0 if operation == "unload" else 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened)
            await held.reached()
            scopes[0].cancel()
            shop.store.deactivate("tiny")
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert not ended.is_set()
            assert (shop.leases(), collected(shop)) == (1, ())
            held.release()
            await ended.wait()
            assert (shop.leases(), device_threads()) == (0, [])
        bench.check_closed()

    run(main)
    assert collected(shop) == (shop.digest,)


class Counted:
    """An observer that counts the leases whenever something is granted."""

    def __init__(self, shop) -> None:
        self.shop = shop
        self.seen: list[int] = []

    def delivered(self, delivery) -> None:
        if any(isinstance(effect, RunGrant) for effect in delivery.effects):
            self.seen.append(self.shop.leases())

    def token(self, request, index, at) -> None: ...

    def dropped(self, error) -> None:
        raise error


def test_R26_retry_and_repair_keep_the_lease_from_the_fault_to_the_end(shop):
    counted = Counted(shop)

    async def main():
        async with shop.bench(seed=True, observers=[counted]).open() as desk:
            shop.store.deactivate("tiny")
            for recover in (desk.scheduler.retry, desk.scheduler.repair):
                desk.backend.fail("decode", DeviceLost("gone; retry or repair"))
                with pytest.raises(DeviceLost):
                    await desk.scheduler.generate(PROMPT, max_tokens=4)
                assert (shop.leases(), collected(shop)) == (1, ())
                await recover()
            assert len((await desk.scheduler.generate(PROMPT, max_tokens=3)).tokens) == 3

    run(main)
    assert set(counted.seen) == {1}
    assert shop.leases() == 0


@pytest.mark.parametrize("operation", ["load", "warm"])
def test_R2_after_a_start_that_failed_nothing_is_leased(shop, operation):
    async def main():
        bench = shop.bench()
        bench.backend.fail(operation, BackendFault("it does not go"))
        with pytest.raises(BackendFault, match="does not go"):
            async with bench.open():
                pytest.fail("it became ready")
        bench.check_closed()

    run(main)
    assert shop.leases() == 0


def test_R2_an_open_that_is_cancelled_anywhere_leaves_nothing_leased_and_nothing_registered(shop):
    """At every step of the task that opens, until one lets it through."""

    async def main():
        for when in ("before", "after"):
            n, reached = 1, True
            while reached:
                bench = shop.bench()

                async def opening(bench=bench):
                    async with bench.open():
                        pass

                reached = await cancelled_at(n, when, opening)
                assert shop.leases() == 0
                assert registered() == ()
                assert bench.assembly.supervisor.readiness().state in ("new", "closed")
                assert device_threads() == []
                n += 1
            assert n > 3

    run(main)


def test_R2_a_partition_that_is_refused_leaves_nothing_leased(shop):
    device = {"partition": "64 MiB", "workspace": "8 MiB", "id": "refused", "physical": "100 MiB"}

    async def main():
        async with shop.bench(device=device).open():
            with pytest.raises(BudgetExceeded):
                async with shop.bench(device=device).open():
                    pytest.fail("both were admitted")
            assert shop.leases() == 1

    run(main)
    assert shop.leases() == 0


def test_R2_R3_a_device_that_hangs_keeps_lease_and_partition_until_its_thread_has_ended(shop):
    """A thread can't be ended from outside: a closed scheduler leaves one that hangs behind, with what it may read."""
    bench, holding, unstuck = shop.bench(), Holding(), threading.Event()
    holding.take(bench.assembly)
    reader = threading.Thread(target=unstuck.wait, name="hangs")
    reader.start()
    with capture_logs() as logs:
        holding.release(reader)
        assert (shop.leases(), len(registered())) == (1, 1)
        (waiting,) = [thread for thread in threading.enumerate() if thread.name == "coresident-holding"]
        unstuck.set()
        waiting.join()
    assert (shop.leases(), registered()) == (0, ())
    assert [line["event"] for line in logs] == ["holding.kept", "lease.released", "device.released"]
    reader.join()


def test_a_model_that_is_collected_before_its_lease_is_refused_and_not_half_opened(shop):
    async def main():
        bench = shop.bench()
        shop.store.deactivate("tiny")
        assert collected(shop) == (shop.digest,)
        with pytest.raises(ArtifactInvalid):
            async with bench.open():
                pytest.fail("it became ready")

    run(main)
    assert shop.leases() == 0


def test_the_front_door_leases_too(shop):
    async def main():
        async with open_scheduler(shop.config()):
            assert shop.leases() == 1

    run(main)
    assert shop.leases() == 0
