"""Models of a store on Vulkan: weights that a lost device took along are verified before they are read again."""

from __future__ import annotations

import pytest
from coresident.actors.errors import ArtifactInvalid, DeviceLost
from coresident.runtime.backends.vulkan.library import open_functions
from coresident.runtime.backends.vulkan.results import Result

from support.live import run
from support.stored_models import answer, lose, open_shop
from support.vulkan_fakes import Watched

pytestmark = pytest.mark.usefixtures("vulkan")

VULKAN = {"backend": "vulkan"}


@pytest.fixture
def raw(monkeypatch):
    """The functions that every backend of a configuration runs on."""
    watched = Watched(open_functions())
    monkeypatch.setattr("coresident.runtime.backends.vulkan.configured.open_functions", lambda: watched.functions)
    return watched


def test_R36_weights_of_a_lost_device_are_verified_when_they_are_loaded_anew(raw, tmp_path):
    shop = open_shop(tmp_path)

    async def main():
        async with shop.bench(device=VULKAN).open() as desk:
            expected = await answer(desk)
            await lose(desk)
            shop.damage()
            assert (await desk.scheduler.retry()).ready
            assert await answer(desk) == expected
            raw.fail("vkQueueSubmit", Result.ERROR_DEVICE_LOST)
            with pytest.raises(DeviceLost):
                await answer(desk)
            with pytest.raises(ArtifactInvalid, match=shop.digest):
                await desk.scheduler.retry()
            shop.damage()
            assert (await desk.scheduler.retry()).ready
            assert await answer(desk) == expected

    run(main)
