"""Models of a store under the live host: what is selected, what is verified when, and what is refused."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.backends import verifying
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.models import stored
from coresident.runtime.store.faults import StoreFault
from coresident.runtime.store.layer import Layer
from coresident.runtime.store.store import Store
from structlog.testing import capture_logs

from coresident import open_scheduler
from support.live import run
from support.signed import signer, trusting, write_seed
from support.stored_models import FILE, PROMPT, answer, lose, open_shop


@pytest.fixture
def shop(tmp_path):
    return open_shop(tmp_path)


def test_R36_a_selected_model_is_verified_in_its_load_and_on_the_devices_thread(shop, monkeypatch):
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(
        verifying, "inform", lambda event, **_: seen.append((event.value, threading.current_thread().name))
    )

    async def main():
        async with shop.bench().open() as desk:
            assert len(await answer(desk)) == 4
            assert FILE in desk.scheduler.label

    run(main)
    assert seen == [("artifact.verified", "coresident-device")]


def test_R36_bytes_that_changed_since_the_activation_are_not_loaded(shop):
    """Neither the file's size nor its time tell; only reading it does."""

    async def main():
        bench = shop.bench()
        shop.damage()
        with pytest.raises(ArtifactInvalid) as refused:
            async with bench.open():
                pytest.fail("it became ready")
        bench.check_closed()
        return refused.value

    error = run(main)
    assert error.details["file"].endswith(FILE)
    assert error.details["digest"] == shop.digest
    assert shop.digest in error.message
    assert "coresident store repair" in error.message
    assert shop.leases() == 0


def test_R36_damaged_files_are_refused_before_anything_parses_them(shop):
    shop.blob.chmod(0o600)
    shop.blob.write_bytes(b"GGUF" + b"\xff" * 40)
    with pytest.raises(ArtifactInvalid) as refused:
        shop.bench()
    assert (refused.value.details["field"], refused.value.details["digest"]) == ("digest", shop.digest)


def test_R42_nothing_selected_is_an_error_that_says_so_and_what_to_do(tmp_path):
    shop = open_shop(tmp_path, activate=False)
    with pytest.raises(ArtifactInvalid, match=r"nothing is selected.*'reference'.*coresident store activate"):
        shop.bench()
    missing = shop.config(store={"path": str(tmp_path / "nowhere")})
    with pytest.raises(ArtifactInvalid, match="nothing is selected"):
        open_backend(missing)
    assert not (tmp_path / "nowhere").exists()


def test_R42_a_model_selected_for_another_device_is_not_selected_for_this_one(tmp_path):
    shop = open_shop(tmp_path, device="mlx")
    with pytest.raises(ArtifactInvalid, match="on device 'reference'"):
        shop.bench()
    shop.bench(store={"device": "mlx"})


@pytest.mark.parametrize("reference", ["store:", "store:@" + "0" * 64])
def test_a_reference_without_a_name_is_refused(shop, reference):
    with pytest.raises(InvalidRequest, match="names no model"):
        shop.bench(generation={"model": reference})


def test_a_manifest_of_another_model_is_not_the_one_that_was_named(shop):
    with pytest.raises(ArtifactInvalid, match="that manifest is one of 'tiny'"):
        shop.bench(generation={"model": f"store:other@{shop.selection.manifest}"})


def test_R36_a_model_that_no_trusted_key_signed_is_refused(shop):
    shop.key.write_bytes(signer(7).public.pem())
    with pytest.raises(ArtifactInvalid, match="not trusted"):
        shop.bench()


def test_R25_first_use_imports_the_seed_and_a_second_start_nothing(tmp_path):
    shop = open_shop(tmp_path, activate=False)
    store = trusting(tmp_path / "fresh")
    section = {"path": str(store.folder), "keys": [str(shop.key)], "seed": str(shop.seed)}

    async def main():
        async with open_scheduler(shop.config(store=section)) as scheduler:
            return (await scheduler.generate(PROMPT, max_tokens=2)).tokens

    first = run(main)
    records = store.status().records
    (shop.seed / FILE).unlink()
    assert run(main) == first
    assert store.status().records == records == 1


def test_R25_an_unauthenticated_seed_is_refused(tmp_path):
    shop = open_shop(tmp_path, activate=False)
    write_seed(shop.seed, {FILE: b"weights"}, "tiny", key=signer(3))
    with pytest.raises(ArtifactInvalid, match="not trusted"):
        shop.bench(seed=True)
    assert shop.store.status().selections == ()


def test_what_is_opened_is_one_manifest_whatever_is_selected_later(shop, tmp_path):
    async def main():
        bench = shop.bench()
        assert bench.assembly.config.generation.model == f"store:tiny@{shop.selection.manifest}"
        async with bench.open() as desk:
            expected = await answer(desk)
            newer = shop.store.add_manifest(write_seed(tmp_path / "newer", {FILE: b"other bytes"}, "tiny").text())
            shop.store.stage(newer, tmp_path / "newer")
            shop.store.activate(newer.manifest)
            await lose(desk)
            await desk.scheduler.repair()
            assert await answer(desk) == expected
        again = open_backend(bench.assembly.config)
        assert again.backend.describe("generation").digest == bench.assembly.models["generation"].digest

    run(main)


class Refusing(Layer):
    """A disk or a mount that takes no writing; counts what it refused."""

    def __init__(self, number: int) -> None:
        self.number, self.refused = number, 0

    def open(self, name, flags, mode=0o600, dir_fd=None):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self._refuse()
        return super().open(name, flags, mode, dir_fd)

    def mkdir(self, name, mode=0o700, dir_fd=None):
        self._refuse()

    def _refuse(self):
        self.refused += 1
        raise OSError(self.number, os.strerror(self.number))


def on(shop, layer, monkeypatch) -> None:
    monkeypatch.setattr(stored, "_store", lambda config: Store(shop.store.folder, (signer().public,), layer))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_read_only_store_serves_and_says_that_it_gives_no_leases(shop, monkeypatch, number):
    layer = Refusing(number)
    on(shop, layer, monkeypatch)

    async def main():
        async with shop.bench().open() as desk:
            await answer(desk)

    with capture_logs() as logs:
        run(main)
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert (warning["event"], warning["model"]) == ("lease.unavailable", "tiny")
    assert os.strerror(number) in warning["error"]
    assert layer.refused == 1


def test_R2_a_full_disk_gives_no_lease_and_so_no_scheduler(shop, monkeypatch):
    on(shop, Refusing(errno.ENOSPC), monkeypatch)

    async def main():
        bench = shop.bench()
        with pytest.raises(StoreFault, match="free some space"):
            async with bench.open():
                pytest.fail("it became ready")
        assert bench.backend.loads.total() == 0

    run(main)
