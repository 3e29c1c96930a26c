"""The pipeline cache's file: for one device, driver and set of kernels; whole, or not there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import attrs
import pytest
from coresident.runtime.backends.vulkan import pipeline_cache
from coresident.runtime.backends.vulkan.pipeline_cache import HEADER, MAGIC, CacheFile, default_folder
from coresident.runtime.backends.vulkan.results import Result

from support.vulkan_fakes import Watched
from support.vulkan_life import NAME, device_info, functions, kernels, opened

GIVEN = b"what the driver compiled" * 10


def header(**change) -> bytes:
    fields = {"size": HEADER.size, "version": 1, "vendor": device_info().vendor, "device": device_info().device}
    fields |= {"uuid": device_info().cache_uuid} | change
    return HEADER.pack(*fields.values())


def wrapped(data: bytes) -> bytes:
    return MAGIC + hashlib.sha256(data).digest() + data


@pytest.fixture
def file(tmp_path) -> CacheFile:
    return CacheFile.of(tmp_path, device_info(), kernels().digest)


@pytest.fixture
def given():
    """The initial data of every cache that was created, and functions that keep it."""
    kept: list[bytes] = []
    watched = Watched(functions())
    raw = watched.functions.table["vkCreatePipelineCache"]

    def create(device, info, allocator, out):
        kept.append(
            bytes(functions().ffi.buffer(info.pInitialData, info.initialDataSize)) if info.initialDataSize else b""
        )
        return raw(device, info, allocator, out)

    watched.functions.table["vkCreatePipelineCache"] = create
    return watched, kept


def test_R69_what_was_saved_is_given_to_the_next_device(given, tmp_path, file) -> None:
    watched, kept = given
    for _ in range(2):
        device = opened(watched.functions, cache=tmp_path / "new" / "folder")
        device.pipeline(NAME)
        path = device.save_cache()
        device.close()
    assert kept[0] == b""
    assert kept[1].startswith(header())
    assert path.name == file.path.name
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert watched.left() == []


def test_opening_writes_nothing_and_without_a_folder_nothing_is_saved(tmp_path) -> None:
    device = opened(cache=tmp_path / "cache")
    device.pipeline(NAME)
    device.close()
    assert list(tmp_path.iterdir()) == []
    device = opened()
    assert device.save_cache() is None
    device.close()


@pytest.mark.parametrize(
    "change",
    [
        {"vendor": 1},
        {"device": 99},
        {"driver": "other 1.0"},
        {"driver_version": 2},
        {"cache_uuid": bytes(16)},
        "kernels",
    ],
    ids=str,
)
def test_R69_another_device_driver_or_set_of_kernels_has_another_file(tmp_path, file, change) -> None:
    if change == "kernels":
        other = CacheFile.of(tmp_path, device_info(), "0" * 64)
    else:
        other = CacheFile.of(tmp_path, attrs.evolve(device_info(), **change), kernels().digest)
    assert other.path != file.path


def damaged(name: str) -> bytes:
    whole = wrapped(header() + GIVEN)
    return {
        "empty": b"",
        "cut": whole[:-1],
        "cut in its digest": whole[: len(MAGIC) + 3],
        "longer": whole + b"x",
        "one bit": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
        "another magic": b"x" + whole[1:],
        "no data": wrapped(b""),
        "less than a header": wrapped(header()[:31]),
        "another vendor": wrapped(header(vendor=1) + GIVEN),
        "another device": wrapped(header(device=99) + GIVEN),
        "another driver": wrapped(header(uuid=bytes(16)) + GIVEN),
        "another version": wrapped(header(version=2) + GIVEN),
        "another size": wrapped(header(size=16) + GIVEN),
        "a driver's file as it is": header() + GIVEN,
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        *("empty", "cut", "cut in its digest", "longer", "one bit", "another magic", "no data", "less than a header"),
        *("another vendor", "another device", "another driver", "another version", "another size"),
        "a driver's file as it is",
    ],
)
def test_a_damaged_or_foreign_file_never_reaches_the_driver_and_a_warning_names_it(
    given, tmp_path, file, name, capsys
) -> None:
    watched, kept = given
    file.path.write_bytes(damaged(name))
    device = opened(watched.functions, cache=tmp_path)
    assert kept == [b""]
    said = capsys.readouterr().out
    assert "pipeline_cache.ignored" in said
    assert file.path.name in said.replace("\n", "")
    device.pipeline(NAME)
    device.save_cache()
    device.close()
    assert file.path.read_bytes().startswith(MAGIC)
    opened(watched.functions, cache=tmp_path).close()
    assert kept[1].startswith(header())
    assert "pipeline_cache.ignored" not in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_ignored(tmp_path, file, capsys) -> None:
    file.path.mkdir()
    opened(cache=tmp_path).close()
    assert "it cannot be read" in capsys.readouterr().out


def test_a_file_that_is_far_too_long_is_not_read_whole(tmp_path, file, capsys, monkeypatch) -> None:
    monkeypatch.setattr(pipeline_cache, "LARGEST", 100)
    file.path.write_bytes(wrapped(header() + GIVEN))
    opened(cache=tmp_path).close()
    assert "more than 100 bytes" in capsys.readouterr().out


def test_data_that_the_driver_does_not_take_is_left_out(tmp_path, file, capsys) -> None:
    file.path.write_bytes(wrapped(header() + GIVEN))
    watched = Watched(functions())
    watched.fail("vkCreatePipelineCache", Result.ERROR_INITIALIZATION_FAILED)
    opened(watched.functions, cache=tmp_path).close()
    assert "the driver does not take it" in capsys.readouterr().out
    assert watched.left() == []


def test_the_folder_is_the_users_cache_folder() -> None:
    assert default_folder({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/coresident/vulkan")
    home = Path.home() / ".cache/coresident/vulkan"
    assert default_folder({}) == default_folder({"XDG_CACHE_HOME": "relative"}) == home
