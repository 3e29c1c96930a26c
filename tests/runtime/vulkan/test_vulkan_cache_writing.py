"""Writing the pipeline cache's file: whole under its name, or as it was before."""

from __future__ import annotations

import os

import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.runtime.backends.vulkan.pipeline_cache import MAGIC, CacheFile
from coresident.runtime.backends.vulkan.results import Result

from support.vulkan_fakes import Watched
from support.vulkan_life import device_info, functions, kernels, opened


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch, step) -> None:
    device = opened(cache=tmp_path)
    file = CacheFile.of(tmp_path, device_info(), kernels().digest)
    before = b"what was there"
    file.path.write_bytes(before)

    def no_space(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, no_space)
        with pytest.raises(InvalidRequest, match=r"cannot be written to .*No space left"):
            device.save_cache()
    device.close()
    assert file.path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_folder_that_cannot_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    device = opened(cache=tmp_path / "file" / "cache")
    with pytest.raises(InvalidRequest, match="set XDG_CACHE_HOME to a folder that can be written"):
        device.save_cache()
    device.close()


def test_a_cache_that_grows_while_it_is_read_is_read_again_and_not_for_ever(tmp_path) -> None:
    watched = Watched(functions())
    device = opened(watched.functions, cache=tmp_path)
    watched.fail("vkGetPipelineCacheData", Result.INCOMPLETE, nth=2)
    assert device.save_cache().read_bytes().startswith(MAGIC)
    assert watched.count("vkGetPipelineCacheData") == 4
    watched.fail("vkGetPipelineCacheData", Result.INCOMPLETE, on=True)
    with pytest.raises(BackendFault, match="kept growing"):
        device.save_cache()
    device.close()
