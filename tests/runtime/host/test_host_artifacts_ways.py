"""Repair from whatever state a store is in, asked for or at opening; and what is told to who has to do it."""

from __future__ import annotations

import os
import shutil

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.backends.verifying import repair_stored

from coresident import open_scheduler
from support.live import run
from support.spoiling import WAYS, check_whole, spoil
from support.stored_models import FILE, PROMPT, answer, lose, open_shop


@pytest.fixture
def shop(tmp_path):
    return open_shop(tmp_path)


async def opened(config) -> tuple[int, ...]:
    async with open_scheduler(config) as scheduler:
        return (await scheduler.generate(PROMPT, max_tokens=4)).tokens


@pytest.mark.parametrize(("blob", "view", "manifest"), WAYS)
def test_R27_a_repair_makes_a_store_whole_from_any_state_so_that_a_new_process_can_open_it(shop, blob, view, manifest):
    config = shop.config(seed=True)
    backend = open_backend(config).backend
    spoil(shop, blob, view, manifest)
    repair_stored(backend)
    check_whole(shop)
    open_backend(config)


def test_R27_a_repair_puts_back_an_artifact_of_which_only_the_view_is_left(shop):
    """Another worker opens the store anew, and finds the artifact; a thread has the bytes by the view's name."""

    async def main():
        async with shop.bench(seed=True).open() as desk:
            expected = await answer(desk)
            shop.blob.unlink()
            await lose(desk)
            assert (await desk.scheduler.repair()).ready
            assert await answer(desk) == expected

    run(main)
    check_whole(shop)


def test_R27_without_a_seed_a_repair_says_where_one_is_named(shop):
    async def main():
        async with shop.bench().open() as desk:
            shop.damage()
            await lose(desk)
            with pytest.raises(ArtifactInvalid, match=r"store\.seed") as refused:
                await desk.scheduler.repair()
            assert "--from" not in refused.value.message

    run(main)


@pytest.mark.parametrize(("blob", "view", "manifest"), [way for way in WAYS if "whole" in way and len(set(way)) == 2])
def test_R27_opening_repairs_by_itself_where_restarts_are_allowed(shop, blob, view, manifest):
    config = shop.config(seed=True, limits={"restarts": 1})
    expected = run(lambda: opened(config))
    spoil(shop, blob, view, manifest)
    assert run(lambda: opened(config)) == expected
    check_whole(shop)


def test_R27_opening_repairs_what_only_the_load_finds(shop):
    config = shop.config(seed=True, limits={"restarts": 1})
    expected = run(lambda: opened(config))
    shop.damage()
    assert run(lambda: opened(config)) == expected
    check_whole(shop)


def test_R27_without_restarts_opening_changes_nothing_and_says_what_to_run(shop):
    shop.damage()
    os.utime(shop.blob)
    before = shop.blob.read_bytes()
    with pytest.raises(ArtifactInvalid, match=r"limits\.restarts") as refused:
        run(lambda: opened(shop.config(seed=True)))
    assert f"--from {shop.seed} --store {shop.store.folder} --trust {shop.key}" in refused.value.message
    assert "store.seed" not in refused.value.message
    with pytest.raises(ArtifactInvalid, match=r"store\.seed"):
        run(lambda: opened(shop.config()))
    assert shop.blob.read_bytes() == before


def test_R27_a_seed_without_a_good_copy_ends_the_opening_with_what_is_missing(shop):
    (shop.seed / FILE).write_bytes(b"no model")
    shop.blob.unlink()
    with pytest.raises(ArtifactInvalid, match=f"{FILE}.*missing"):
        run(lambda: opened(shop.config(seed=True, limits={"restarts": 1})))
    assert not shop.blob.exists()


def test_R25_a_seed_of_links_is_imported_with_the_bytes_they_lead_to(tmp_path):
    shop = open_shop(tmp_path / "made")
    cache = tmp_path / "cache"
    cache.mkdir()
    for file in shop.seed.iterdir():
        shutil.move(file, cache / file.name)
        file.symlink_to(cache / file.name)
    shutil.rmtree(shop.store.folder)
    assert len(run(lambda: opened(shop.config(seed=True)))) == 4
    assert not shop.blob.is_symlink()
    check_whole(shop)


def test_a_model_named_like_one_of_the_store_is_pointed_to(shop):
    config = shop.config(generation={"model": "tiny"})
    with pytest.raises(ArtifactInvalid, match="did you mean store:tiny"):
        open_backend(config)
    with pytest.raises(ArtifactInvalid, match=r"smollm2\)$"):
        open_backend(shop.config(generation={"model": "huge"}))
