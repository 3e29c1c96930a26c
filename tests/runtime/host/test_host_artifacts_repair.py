"""Recovery of models of a store: what a retry takes as it is, what a repair reads and replaces, and in which order."""

from __future__ import annotations

import pytest
from coresident.actors.effects import RunGrant
from coresident.actors.errors import ArtifactInvalid, DeviceLost
from coresident.actors.work import LoadWork
from structlog.testing import capture_logs

from support.live import run
from support.stored_models import FILE, answer, lose, open_shop

RECOVERY = (
    "lease.taken",
    "lease.released",
    "artifact.verified",
    "artifact.damaged",
    "artifact.replaced",
    "model.loaded",
    "model.warm",
    "readiness",
)


@pytest.fixture
def shop(tmp_path):
    return open_shop(tmp_path)


def said(logs, *names: str) -> list[str]:
    """Events of these names, readiness with its state, in order."""
    chosen = [line for line in logs if line["event"] in names or not names]
    return [f"{line['event']} {line['state']}" if "state" in line else line["event"] for line in chosen]


def test_R27_R28_repair_reads_every_byte_replaces_loads_and_warms_and_then_is_ready(shop):
    async def main():
        async with shop.bench(seed=True).open() as desk:
            expected = await answer(desk)
            shop.damage()
            await lose(desk)
            with capture_logs() as logs:
                ready = await desk.scheduler.repair()
            assert ready.ready
            assert await answer(desk) == expected
            return said(logs, *RECOVERY)

    assert run(main) == [
        "readiness recovering",
        "artifact.damaged",
        "artifact.replaced",
        "artifact.verified",
        "model.loaded",
        "model.warm",
        "readiness ready",
    ]
    assert [state.state for state in shop.store.verify(shop.selection)] == ["ok"]


def test_R27_repair_of_what_is_whole_verifies_and_replaces_nothing(shop):
    async def main():
        async with shop.bench(seed=True).open() as desk:
            await lose(desk)
            with capture_logs() as logs:
                await desk.scheduler.repair()
            return said(logs, *RECOVERY)

    assert run(main) == [
        "readiness recovering",
        "artifact.verified",
        "model.loaded",
        "model.warm",
        "readiness ready",
    ]


def test_R80_retry_takes_the_weights_that_are_there_and_neither_reads_nor_replaces(shop):
    async def main():
        async with shop.bench(seed=True).open() as desk:
            expected = await answer(desk)
            shop.damage()
            await lose(desk)
            with capture_logs() as logs:
                await desk.scheduler.retry()
            assert await answer(desk) == expected
            return said(logs, *RECOVERY)

    assert run(main) == ["readiness recovering", "model.loaded", "model.warm", "readiness ready"]
    assert [state.state for state in shop.store.verify(shop.selection)] == ["damaged"]


def test_R80_a_retry_that_has_to_load_verifies_and_replaces_nothing(shop):
    """After a load that failed there are no weights; then damaged ones must not come in by a retry."""

    async def main():
        async with shop.bench(seed=True).open() as desk:
            await lose(desk)
            desk.backend.fail("load", DeviceLost("gone again"), segment=0)
            with pytest.raises(DeviceLost):
                await desk.scheduler.repair()
            shop.damage()
            with pytest.raises(ArtifactInvalid):
                await desk.scheduler.retry()
            assert desk.scheduler.readiness().state == "faulted"
            assert [state.state for state in shop.store.verify(shop.selection)] == ["damaged"]
            assert (await desk.scheduler.repair()).ready

    run(main)


def test_R27_without_a_good_copy_a_repair_ends_faulted_naming_file_and_digest(shop):
    async def main():
        async with shop.bench().open() as desk:
            expected = await answer(desk)
            shop.damage()
            await lose(desk)
            with pytest.raises(ArtifactInvalid) as refused:
                await desk.scheduler.repair()
            faulted = desk.scheduler.readiness()
            assert (faulted.state, faulted.admitted_context, faulted.actions) == ("faulted", 0, ("retry", "repair"))
            for words in (FILE, shop.digest):
                assert words in refused.value.message
            assert shop.leases() == 1
            shop.store.repair(shop.selection, shop.seed)
            await desk.scheduler.repair()
            assert await answer(desk) == expected

    run(main)
    assert shop.leases() == 0


def test_R27_a_file_and_a_manifest_that_are_gone_are_put_back(shop):
    async def main():
        async with shop.bench(seed=True).open() as desk:
            expected = await answer(desk)
            shop.blob.unlink()
            (shop.store.folder / "views" / shop.selection.manifest / FILE).unlink()
            (shop.store.folder / "manifests" / f"{shop.selection.manifest}.json").unlink()
            await lose(desk)
            await desk.scheduler.repair()
            assert await answer(desk) == expected

    run(main)


class Repairs:
    """An observer that keeps what each load was for."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, bool]] = []

    def delivered(self, delivery) -> None:
        granted = [effect.grant.step.work for effect in delivery.effects if isinstance(effect, RunGrant)]
        self.seen += [(work.weights, work.repair) for work in granted if isinstance(work, LoadWork)]

    def token(self, request, index, at) -> None: ...

    def dropped(self, error) -> None:
        raise error


def test_R80_only_repair_asks_for_a_repair(shop):
    seen = Repairs()

    async def main():
        async with shop.bench(observers=[seen]).open() as desk:
            for action in (desk.scheduler.retry, desk.scheduler.repair):
                await lose(desk)
                await action()

    run(main)
    assert seen.seen == [(True, False), (False, False), (True, True)]
