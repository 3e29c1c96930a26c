"""Keys of the device section that one backend alone has."""

from __future__ import annotations

import pytest
from coresident.actors.errors import InvalidRequest
from coresident.runtime.config import DeviceConfig, structure


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"device": {"backend": "mlx", "margin": -1}}, "margin is -1: it must be at least 0 @ here.device$"),
        ({"device": {"backend": "mlx", "margin": 0.5}}, "0.5 is not an integer @ here.device.margin$"),
        ({"device": {"margin": 20}}, "margin is 20, but backend is 'reference': only 'mlx' has one @ here.device$"),
        ({"device": {"backend": "vulkan", "index": -1}}, "index is -1: it must be at least 0 @ here.device$"),
        ({"device": {"backend": "vulkan", "index": "0"}}, "'0' is not an integer @ here.device.index$"),
        ({"device": {"index": 0}}, "index is 0, but backend is 'reference': only 'vulkan' has one @ here.device$"),
        ({"device": {"backend": "vulkan", "share": 101}}, "share is 101: it must be from 1 to 100 percent @ here.dev"),
        ({"device": {"backend": "vulkan", "share": 0}}, "share is 0: it must be from 1 to 100 percent @ here.device$"),
        ({"device": {"backend": "mlx", "share": 9}}, "share is 9, but backend is 'mlx': only 'vulkan' has one"),
    ],
)
def test_errors_name_key_value_and_the_backend_that_has_it(data, message):
    with pytest.raises(InvalidRequest, match=message):
        structure(data, "here")


def test_a_margin_is_mlxs_own_and_does_not_go_to_another_backend():
    device = structure({"device": {"backend": "mlx", "margin": 25}}).device
    assert device.margin == device.under("mlx").margin == 25
    assert device.under("modelled").margin == DeviceConfig().margin == 10


def test_vulkans_own_keys_are_read_and_do_not_go_to_another_backend():
    device = structure({"device": {"backend": "vulkan", "index": 1, "share": 60}}).device
    assert (device.index, device.share) == (1, 60)
    assert (device.under("mlx").index, device.under("mlx").share) == (DeviceConfig().index, DeviceConfig().share)
    assert (DeviceConfig().index, DeviceConfig().share) == (None, None)


def test_a_device_inside_of_its_worker_is_a_thread_with_the_driver_in_its_environment():
    driver = {"manifest": "icd.json", "versions": {"api_version": "1.3.274"}}
    outside = structure({"device": {"backend": "vulkan", "executor": "process", "driver": driver, "index": 2}}).device
    inside = outside.inside()
    assert (inside.executor, inside.driver.manifest) == ("thread", "")
    assert (inside.backend, inside.index, inside.partition) == ("vulkan", 2, outside.partition)
